import { Bell, BellOff, EllipsisVertical, FlaskConical, History, Pencil, Trash2 } from 'lucide-react'
import { Link } from '@tanstack/react-router'
import type { Schemas } from '@/api/client'
import { alertState, conditionText, countedSince, isMuted, measureText } from '@/lib/alerts'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, Menu, MenuItem, MenuLine, Status, Table, type Column } from '@/ui'
import { useAlertActions } from './useAlertActions'

type Alert = Schemas['Alert']

interface AlertTableProps {
  alerts: readonly Alert[]
  onShow(alert: Alert): void
  onEdit(alert: Alert): void
  onDelete(alert: Alert): void
}

export const MUTE_CHOICES = [
  { minutes: 60, name: 'Mute for 1 hour' },
  { minutes: 480, name: 'Mute for 8 hours' },
  { minutes: 1440, name: 'Mute for 24 hours' },
]

export function AlertTable({ alerts, onShow, onEdit, onDelete }: AlertTableProps) {
  const { zone } = usePrefs()
  const now = useNow(10_000)
  const actions = useAlertActions()
  const columns: Column<Alert>[] = [
    { key: 'state', header: 'State', className: 'sm:w-32', cell: (alert) => <AlertStatus alert={alert} now={now} /> },
    {
      key: 'alert',
      header: 'Alert',
      className: 'name min-w-40',
      cell: (alert) => (
        <span className="flex flex-col py-1.5">
          <span className="font-medium break-words max-sm:wrap-anywhere">{alert.name}</span>
          <span>{conditionText(alert)}</span>
          <span className="sm:hidden">Last value {measureText(alert.measure, alert.value)}</span>
          {alert.query !== '' && <code className="text-xs break-all text-muted">{alert.query}</code>}
          <PartialNote reading={alert} />
          {alert.error !== null && <span className="text-xs break-words text-err">{alert.error}</span>}
        </span>
      ),
    },
    { key: 'value', header: 'Last value', number: true, from: 'sm', cell: (alert) => measureText(alert.measure, alert.value) },
    { key: 'checked', header: 'Checked', from: 'md', className: 'whitespace-nowrap', cell: (alert) => (alert.checked_at === null ? <span className="text-muted">not yet</span> : <time title={time(alert.checked_at, zone, 'full')}>{ago(alert.checked_at, now)}</time>) },
    {
      key: 'act',
      header: (
        <span className="relative">
          <span className="sr-only">Actions</span>
        </span>
      ),
      className: 'w-10',
      cell: (alert) => (
        <Menu trigger={<Button kind="ghost" size="sm" square aria-label={`Actions for ${alert.name}`} icon={<EllipsisVertical size={14} aria-hidden />} />}>
          <MenuItem icon={<History size={14} aria-hidden />} onSelect={() => onShow(alert)}>
            History
          </MenuItem>
          <MenuItem needs="admin" icon={<FlaskConical size={14} aria-hidden />} onSelect={() => actions.test(alert)}>
            Send a test
          </MenuItem>
          <MenuLine />
          {isMuted(alert, now) ? (
            <MenuItem needs="admin" icon={<Bell size={14} aria-hidden />} onSelect={() => actions.mute(alert, 0)}>
              Unmute
            </MenuItem>
          ) : (
            MUTE_CHOICES.map(({ minutes, name }) => (
              <MenuItem key={minutes} needs="admin" icon={<BellOff size={14} aria-hidden />} onSelect={() => actions.mute(alert, minutes)}>
                {name}
              </MenuItem>
            ))
          )}
          <MenuLine />
          <MenuItem needs="admin" icon={<Pencil size={14} aria-hidden />} onSelect={() => onEdit(alert)}>
            Edit…
          </MenuItem>
          <MenuItem needs="admin" danger icon={<Trash2 size={14} aria-hidden />} onSelect={() => onDelete(alert)}>
            Delete…
          </MenuItem>
        </Menu>
      ),
    },
  ]
  return <Table label="Alerts" columns={columns} rows={alerts} rowKey={(alert) => alert.id} onOpen={onShow} />
}

/** Badge of a reading for which not all rows of the window were counted. */
export function PartialNote({ reading }: { reading: Parameters<typeof countedSince>[0] }) {
  const { zone } = usePrefs()
  const since = countedSince(reading)
  if (since === null) return null
  return (
    <span className="text-xs text-muted">
      <Badge tone="warn" title="The window has too many rows to read them all">
        Partial
      </Badge>{' '}
      only rows since {time(since, zone, 'time')} were counted
    </span>
  )
}

export function AlertStatus({ alert, now }: { alert: Alert; now: number }) {
  const { zone } = usePrefs()
  const { word, tone } = alertState(alert, now)
  return (
    <span className="flex flex-col">
      <Status tone={tone}>{word}</Status>
      {isMuted(alert, now) ? (
        <span className="text-xs whitespace-nowrap text-muted">until {time(alert.muted_until, zone, 'minute')}</span>
      ) : (
        alert.changed_at !== null && (
          <time className="text-xs whitespace-nowrap text-muted" title={time(alert.changed_at, zone, 'full')}>
            since {time(alert.changed_at, zone, Date.parse(alert.changed_at) > now - 86_400_000 ? 'minute' : 'day')}
          </time>
        )
      )}
    </span>
  )
}

/** The requests that an alert measures; `to` is the end of its window. */
export function AlertLogs({ alert, to, children }: { alert: Alert; to: string; children: string }) {
  const from = new Date(Date.parse(to) - alert.window_minutes * 60_000).toISOString()
  return (
    <Link to="/logs" search={{ query: alert.query || undefined, own: 'show', from, to }} className="text-accent underline">
      {children}
    </Link>
  )
}
