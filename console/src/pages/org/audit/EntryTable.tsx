import { Link } from '@tanstack/react-router'
import { ago, NO_VALUE, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Badge, Table, type Column } from '@/ui'
import type { Entry } from './ChangeList'
import { actionInWords } from './words'

const TONES = { success: 'ok', denied: 'warn', failed: 'err' } as const

interface Props {
  entries: Entry[]
  now: number
  selected: string | null
  onOpen(entry: Entry): void
}

export function EntryTable({ entries, now, selected, onOpen }: Props) {
  const { zone } = usePrefs()
  const columns: Column<Entry>[] = [
    { key: 'seq', header: '#', number: true, from: 'md', cell: (entry) => entry.seq },
    { key: 'at', header: 'When', cell: (entry) => <time dateTime={entry.at} title={time(entry.at, zone, 'full')} className="whitespace-nowrap">{ago(entry.at, now)}</time> },
    { key: 'actor', header: 'Actor', className: 'name max-w-48 truncate', cell: (entry) => <span title={entry.actor.id ?? undefined}>{entry.actor.name ?? entry.actor.type}</span> },
    {
      key: 'action',
      header: 'Action',
      cell: (entry) => (
        <span className="flex flex-wrap items-center gap-1" title={entry.action}>
          {actionInWords(entry.action)}
          {entry.outcome !== 'success' && <Badge tone={TONES[entry.outcome]}>{entry.outcome}</Badge>}
        </span>
      ),
    },
    { key: 'target', header: 'Target', className: 'max-w-56 truncate', from: 'sm', cell: (entry) => <TargetLink entry={entry} /> },
    { key: 'ip', header: 'Address', from: 'lg', cell: (entry) => <code>{entry.ip ?? NO_VALUE}</code> },
  ]
  return <Table label="Audit log" columns={columns} rows={entries} rowKey={(entry) => entry.id} selected={selected} onOpen={onOpen} />
}

/** Links to everything that happened to the target. */
function TargetLink({ entry }: { entry: Entry }) {
  const { type, id, name } = entry.target
  // Ids of organizations say nothing: it is always this one.
  const shown = name ?? (type === 'org' ? 'this organization' : id)
  if (!shown) return <span className="text-muted">{type}</span>
  if (!id) return <span>{shown}</span>
  return (
    <Link to="/org/audit" search={{ target_type: type, target_id: id }} className="text-accent underline" title={`${type} ${id}`}>
      {shown}
    </Link>
  )
}
