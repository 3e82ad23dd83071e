import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { pollingOptions } from '@/api/query'
import { conditionText, measureText } from '@/lib/alerts'
import { integer, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, Dialog, ErrorPanel, Pager, SkeletonRows, Status, Table, type Column, type Tone } from '@/ui'
import { AlertLogs, AlertStatus, PartialNote } from './AlertTable'
import { useAlertActions } from './useAlertActions'

type Entry = Schemas['AlertHistoryEntry']

const TONES: Readonly<Record<string, Tone>> = { fired: 'err', resolved: 'ok', tested: 'accent' }

/** State of an alert, and when it fired, was resolved or tested. */
export function AlertHistory({ alert, onClose }: { alert: Schemas['Alert']; onClose: () => void }) {
  const { orgId } = useMe()
  const { zone } = usePrefs()
  const now = useNow(10_000)
  const actions = useAlertActions()
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/alerts/{alertId}/history', { params: { path: { orgId, alertId: alert.id }, query: { limit: 50 } } }, { ...cursorPaging, ...pollingOptions(10_000) })
  const entries = list.data?.pages.flatMap((page) => page.history) ?? []
  const columns: Column<Entry>[] = [
    { key: 'at', header: 'Time', className: 'whitespace-nowrap', cell: (entry) => <time title={time(entry.at, zone, 'full')}>{time(entry.at, zone)}</time> },
    {
      key: 'kind',
      header: 'What happened',
      cell: (entry) => (
        <span className="flex flex-wrap items-center gap-x-2">
          <Status tone={TONES[entry.kind] ?? 'muted'}>{entry.kind}</Status>
          {entry.muted && <Badge title="The alert was muted: nobody was notified">not sent</Badge>}
          <PartialNote reading={entry} />
        </span>
      ),
    },
    { key: 'value', header: 'Value', number: true, cell: (entry) => measureText(alert.measure, entry.value) },
    { key: 'requests', header: 'Requests', number: true, from: 'sm', cell: (entry) => integer(entry.requests) },
    { key: 'logs', header: 'Logs', from: 'sm', cell: (entry) => <AlertLogs alert={alert} to={entry.at}>Show requests</AlertLogs> },
  ]
  return (
    <Dialog
      open
      onClose={onClose}
      size="lg"
      title={alert.name}
      description={conditionText(alert)}
      actions={
        <>
          <Button needs="admin" onClick={() => actions.test(alert)}>
            Send a test
          </Button>
          <Button onClick={onClose}>Close</Button>
        </>
      }
    >
      <div className="flex flex-wrap items-start gap-x-8 gap-y-2">
        <AlertStatus alert={alert} now={now} />
        <p>
          <b className="tabular-nums">{measureText(alert.measure, alert.value)}</b> <span className="text-muted">at the last check</span>
        </p>
        <AlertLogs alert={alert} to={new Date(now).toISOString()}>Show requests in Logs</AlertLogs>
      </div>
      {alert.query !== '' && <code className="text-xs break-all">{alert.query}</code>}
      <PartialNote reading={alert} />
      {alert.error !== null && <p className="break-words text-err">{alert.error}</p>}
      {list.isPending ? (
        <SkeletonRows rows={4} />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the history" onRetry={() => void list.refetch()} />
      ) : entries.length === 0 ? (
        <p className="text-muted">It has not fired yet.</p>
      ) : (
        <>
          <Table label="History" columns={columns} rows={entries} rowKey={(entry) => `${entry.at} ${entry.kind}`} />
          {list.hasNextPage && <Pager shown={entries.length} what="entries" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </>
      )}
    </Dialog>
  )
}
