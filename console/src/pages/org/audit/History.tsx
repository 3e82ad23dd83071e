/** What happened to one thing, from the audit log. */
import { Link } from '@tanstack/react-router'
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Dialog, ErrorPanel, SkeletonRows, Table, type Column } from '@/ui'
import { ChangeList, type Entry } from './ChangeList'
import { actionInWords } from './words'

interface Target {
  type: 'key' | 'prompt' | 'member' | 'model'
  id: string
}

export function History({ type, id }: Target) {
  const { orgId } = useMe()
  const { zone } = usePrefs()
  const now = useNow(15_000)
  const query = { target_type: type, target_id: id, limit: 50 }
  const list = api.useQuery('get', '/api/v1/orgs/{orgId}/audit', { params: { path: { orgId }, query } })
  if (list.isError) return <ErrorPanel error={list.error} what="the history" onRetry={() => void list.refetch()} />
  if (!list.data) return <SkeletonRows rows={3} />
  if (list.data.entries.length === 0) return <p className="p-3 text-muted">No changes are recorded yet.</p>
  // Values may be whole texts of prompts, so they have the width that a column each for person and action would take.
  const columns: Column<Entry>[] = [
    {
      key: 'at',
      header: 'When',
      className: 'name py-1 align-top sm:min-w-48',
      cell: (entry) => (
        <>
          <time dateTime={entry.at} title={time(entry.at, zone, 'full')}>{ago(entry.at, now)}</time>
          <span className="block text-xs wrap-anywhere text-muted">{entry.actor.name ?? entry.actor.type}</span>
        </>
      ),
    },
    {
      key: 'action',
      header: 'What',
      className: 'w-full py-1 align-top',
      cell: (entry) => (
        <>
          <span className="flex flex-wrap items-center gap-1" title={entry.action}>
            {actionInWords(entry.action)}
            {entry.outcome !== 'success' && <Badge tone="warn">{entry.outcome}</Badge>}
          </span>
          <ChangeList changes={entry.changes} />
        </>
      ),
    },
  ]
  return (
    <>
      <Table label="History" columns={columns} rows={list.data.entries} rowKey={(entry) => entry.id} />
      <p className="p-3">
        <Link to="/org/audit" search={{ target_type: type, target_id: id }} className="text-accent underline">
          In the audit log
        </Link>
      </p>
    </>
  )
}

export function HistoryDialog({ name, onClose, ...target }: Target & { name: string; onClose(): void }) {
  return (
    <Dialog open onClose={onClose} title={`History of ${name}`} size="lg">
      <History {...target} />
    </Dialog>
  )
}
