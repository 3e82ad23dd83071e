import { EllipsisVertical, Pencil, Trash2, Zap } from 'lucide-react'
import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { ago, duration, time, integer } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Badge, Button, ConfirmDialog, ErrorLine, Menu, MenuItem, Status, Switch, toast, usePermissionReason } from '@/ui'

type Config = Schemas['ExportConfig']

export function ExportCard({ config, onEdit }: { config: Config; onEdit: () => void }) {
  const [removing, setRemoving] = useState(false)
  const [result, setResult] = useState<Schemas['ExportTest'] | null>(null)
  const params = { path: { exportId: config.id } }
  const test = useAction(async () => setResult(await unwrap(client.POST('/api/v1/exports/{exportId}/test', { params }))))
  const remove = async (): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/exports/{exportId}', { params }))
    await invalidate('/api/v1/exports')
    toast(`${config.name} deleted`)
  }
  return (
    <li className="card flex min-w-0 flex-col gap-3 p-3" aria-label={config.name}>
      <div className="flex min-w-0 flex-wrap items-center gap-2">
        <h2 className="name min-w-0 truncate text-sm">{config.name}</h2>
        <Badge>{config.kind === 'otlp' ? 'OTLP traces' : 'signed batches'}</Badge>
        <span className="flex-1" />
        <Enabled config={config} />
        <Menu trigger={<Button kind="ghost" size="sm" square aria-label={`Actions for ${config.name}`} icon={<EllipsisVertical size={16} aria-hidden />} />}>
          <MenuItem needs="admin" icon={<Pencil size={14} aria-hidden />} onSelect={onEdit}>
            Edit…
          </MenuItem>
          <MenuItem needs="admin" danger icon={<Trash2 size={14} aria-hidden />} onSelect={() => setRemoving(true)}>
            Delete…
          </MenuItem>
        </Menu>
      </div>
      <p className="name min-w-0 truncate font-mono text-xs text-muted" title={config.endpoint}>
        {config.endpoint}
      </p>
      {config.query !== '' && (
        <p className="min-w-0 text-xs break-words text-muted">
          only <code className="rounded-sm bg-sunken px-1 py-0.5 text-fg">{config.query}</code>
        </p>
      )}
      <Numbers config={config} />
      {config.status.last_error !== null && <p className="rounded-sm bg-err-soft px-2 py-1.5 font-mono text-xs break-words text-err">{config.status.last_error}</p>}
      <div className="flex flex-wrap items-center gap-2">
        <Button size="sm" needs="admin" busy={test.busy} icon={<Zap size={13} aria-hidden />} aria-label={`Test ${config.name}`} onClick={test.run}>
          Test
        </Button>
        <span role="status" className="min-w-0 flex-1 text-xs">
          {result && (
            <Status tone={result.ok ? 'ok' : 'err'}>
              {result.ok ? 'the destination accepted it' : (result.error ?? 'failed')} <span className="text-muted tabular-nums">{duration(result.latency_ms)}</span>
            </Status>
          )}
        </span>
        <span className="flex flex-wrap gap-1 text-xs text-muted">
          sends
          {config.include_sources.map((source) => (
            <Badge key={source}>{source}</Badge>
          ))}
        </span>
      </div>
      <ErrorLine error={test.error} />
      <ConfirmDialog open={removing} onClose={() => setRemoving(false)} title={`Delete ${config.name}?`} action="Delete export" onConfirm={remove}>
        Nothing more is sent, and a delivery under way is stopped. {config.status.lag > 0 && `${integer(config.status.lag)} waiting rows will not be sent.`}
      </ConfirmDialog>
    </li>
  )
}

/** Optimistic update that is rolled back on an error. */
function Enabled({ config }: { config: Config }) {
  const reason = usePermissionReason('admin')
  const [optimistic, setOptimistic] = useState<boolean | null>(null)
  const change = useAction(async (enabled: boolean) => {
    setOptimistic(enabled)
    try {
      await unwrap(client.PUT('/api/v1/exports/{exportId}', { params: { path: { exportId: config.id } }, body: { enabled } }))
      await invalidate('/api/v1/exports')
    } finally {
      setOptimistic(null)
    }
  })
  const checked = optimistic ?? config.enabled
  return (
    <span title={reason ?? change.error?.message}>
      <Switch checked={checked} disabled={reason !== null} aria-description={reason ?? undefined} hint={change.error?.message} label={checked ? 'on' : 'paused'} onChange={(event) => change.run(event.target.checked)} />
    </span>
  )
}

function Numbers({ config: { status } }: { config: Config }) {
  const { zone } = usePrefs()
  const now = useNow(10_000)
  const figures: [string, string, string?][] = [
    ['Delivered', integer(status.delivered)],
    ['Waiting', integer(status.lag), status.lag > 1000 ? 'text-warn' : undefined],
    ['Failed attempts', integer(status.failed), status.failed > 0 ? 'text-err' : undefined],
    ['Skipped', integer(status.skipped)],
    ['Dropped', integer(status.dropped), status.dropped > 0 ? 'text-err' : undefined],
  ]
  return (
    <dl className="grid grid-cols-2 gap-x-4 gap-y-2 sm:grid-cols-3">
      {figures.map(([name, value, tone]) => (
        <div key={name}>
          <dt className="text-xs text-muted">{name}</dt>
          <dd className={`text-base font-medium tabular-nums ${tone ?? ''}`}>{value}</dd>
        </div>
      ))}
      <div>
        <dt className="text-xs text-muted">Last success</dt>
        <dd title={time(status.last_success_at, zone, 'full')}>{status.last_success_at === null ? 'never' : ago(status.last_success_at, now)}</dd>
      </div>
    </dl>
  )
}
