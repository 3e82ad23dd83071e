import { EllipsisVertical, Pencil, RotateCw, ScrollText, Trash2 } from 'lucide-react'
import type { Schemas } from '@/api/client'
import { useAuditReason } from '@/api/me'
import { ago, money, moneyColumn, time } from '@/lib/format'
import { type KeyState, isUsable, keyState } from '@/lib/keyState'
import { usePrefs } from '@/lib/prefs'
import { allowsEverything } from '@/lib/scope'
import { Badge, Button, Menu, MenuItem, Status, Table, type Column, type Tone } from '@/ui'
import type { DisplayNames } from './useDisplayNames'
import { useKeySpend, type KeySpend } from './useKeySpend'

type Key = Schemas['Key']
export type KeyAct = 'edit' | 'rotate' | 'revoke' | 'history'

interface Props {
  keys: Key[]
  names: DisplayNames
  now: number
  mayManage: (key: Key) => boolean
  onAct: (kind: KeyAct, key: Key) => void
}

const TONES: Record<KeyState, Tone> = { active: 'ok', expiring: 'warn', expired: 'muted', revoked: 'muted' }
const MAX_VISIBLE_SCOPES = 2

export function KeyTable({ keys, names, now, mayManage, onAct }: Props) {
  const { zone } = usePrefs()
  const spendOf = useKeySpend(now)
  const amount = moneyColumn(keys.map((key) => shownSpend(spendOf(key.id))))
  const columns: Column<Key>[] = [
    {
      key: 'name',
      header: 'Name',
      className: 'name',
      cell: (key) => (
        <span className="flex min-w-0 flex-col py-1">
          <span className="font-medium">{key.name}</span>
          {key.imported === null ? <code className="truncate whitespace-nowrap text-muted">{key.key_prefix}…</code> : <span className="text-muted">imported from {key.imported}</span>}
        </span>
      ),
    },
    {
      key: 'state',
      header: 'State',
      cell: (key) => (
        <Status tone={TONES[keyState(key, now)]} title={time(key.revoked_at ?? key.expires_at, zone, 'full')}>
          {keyState(key, now) === 'expiring' ? `expires ${ago(key.expires_at, now)}` : keyState(key, now)}
        </Status>
      ),
    },
    { key: 'scopes', header: 'Access', from: 'sm', cell: (key) => <Scopes scopes={key.scopes} /> },
    { key: 'app', header: 'Application', from: 'lg', cell: (key) => names.app(key.app_id) ?? <span className="text-muted">–</span> },
    { key: 'expires', header: 'Expires', from: 'lg', cell: (key) => (key.expires_at === null ? <span className="text-muted">never</span> : <time title={time(key.expires_at, zone, 'full')}>{time(key.expires_at, zone, 'date')}</time>) },
    { key: 'spend', header: 'Spend this month', number: true, from: 'md', cell: (key) => <Spend spend={spendOf(key.id)} amount={amount} /> },
    { key: 'by', header: 'Created by', from: 'xl', cell: (key) => names.person(key.created_by) ?? <span className="text-muted">{key.created_by === null ? 'setup' : 'a former member'}</span> },
    { key: 'created', header: 'Created', from: '2xl', cell: (key) => <time title={time(key.created_at, zone, 'full')}>{time(key.created_at, zone, 'date')}</time> },
    {
      key: 'used',
      header: 'Last used',
      from: 'md',
      cell: (key) => (key.last_used_at === null ? <span className="text-muted">never</span> : <time title={time(key.last_used_at, zone, 'full')}>{ago(key.last_used_at, now)}</time>),
    },
    {
      key: 'actions',
      // Positioned inside the table, so that it does not widen the page when the table scrolls.
      header: (
        <span className="relative">
          <span className="sr-only">Actions</span>
        </span>
      ),
      className: 'w-10 text-right',
      cell: (key) => <Actions name={key.name} usable={isUsable(key, now)} blocked={!mayManage(key) && 'Only admins and the person who created it'} onAct={(kind) => onAct(kind, key)} />,
    },
  ]
  return <Table label="Keys" columns={columns} rows={keys} rowKey={(key) => key.id} />
}

/** What counts against a monthly budget, else what was spent this month. */
const shownSpend = ({ spent, budget }: KeySpend) => (budget?.period === 'monthly' ? budget.spent_usd : spent)

/** `$1.20 of $5.00 monthly`, or without a budget the amount alone. */
function Spend({ spend: { spent, budget }, amount }: { spend: KeySpend; amount: (usd: number | null) => string }) {
  const limit = budget?.hard_limit_usd ?? budget?.soft_limit_usd ?? null
  if (budget === null || limit === null) return amount(spent)
  const isOver = budget.spent_usd !== null && budget.spent_usd >= limit
  return (
    <span className={isOver ? 'text-err' : undefined} title={`Budget: ${money(limit)} ${budget.period}`}>
      {amount(shownSpend({ spent, budget }))} <span className="text-muted">of {money(limit)} {budget.period}</span>
    </span>
  )
}

function Scopes({ scopes }: { scopes: string[] }) {
  if (allowsEverything(scopes)) return <span className="text-muted">all models, admin</span>
  if (scopes.length === 1 && scopes[0] === 'proxy') return <span className="text-muted">all models</span>
  if (scopes.length === 1 && scopes[0] === 'read') return <span className="text-muted">read only</span>
  return (
    <span className="flex flex-wrap gap-1 py-1" title={scopes.join('\n')}>
      {scopes.slice(0, MAX_VISIBLE_SCOPES).map((scope) => (
        <Badge key={scope}>
          <span className="font-mono">{scope}</span>
        </Badge>
      ))}
      {scopes.length > MAX_VISIBLE_SCOPES && <Badge>+{scopes.length - MAX_VISIBLE_SCOPES}</Badge>}
    </span>
  )
}

function Actions({ name, usable, blocked, onAct }: { name: string; usable: boolean; blocked: string | false; onAct: (kind: KeyAct) => void }) {
  const reason = blocked || (!usable && 'The key has expired or was revoked')
  const auditReason = useAuditReason()
  return (
    <Menu trigger={<Button kind="ghost" size="sm" square aria-label={`Actions for ${name}`} icon={<EllipsisVertical size={16} aria-hidden />} />}>
      <MenuItem icon={<Pencil size={14} aria-hidden />} blocked={reason} onSelect={() => onAct('edit')}>
        Edit…
      </MenuItem>
      <MenuItem icon={<RotateCw size={14} aria-hidden />} blocked={reason} onSelect={() => onAct('rotate')}>
        Rotate…
      </MenuItem>
      <MenuItem icon={<ScrollText size={14} aria-hidden />} blocked={auditReason ?? false} onSelect={() => onAct('history')}>
        History
      </MenuItem>
      <MenuItem icon={<Trash2 size={14} aria-hidden />} danger blocked={reason} onSelect={() => onAct('revoke')}>
        Revoke…
      </MenuItem>
    </Menu>
  )
}
