import { useEffect, type ReactNode } from 'react'
import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { duration, moneyColumn, plural } from '@/lib/format'
import { rowMatches } from '@/lib/replays'
import { useShortcuts } from '@/lib/shortcuts'
import { Badge, DockedDrawer, Empty, ErrorPanel, NoMatch, Pager, Section, Select, SkeletonRows, Table, type Column } from '@/ui'
import { isRunning } from '../evals/RunList'
import { RowContent, RowHead } from './RowDetail'
import { ROW_FILTERS, type ReplaySearch, type RowFilter } from './search'

type Row = Schemas['ReplayRow']

interface RowsProps {
  replay: Schemas['ReplayDetail']
  search: ReplaySearch
  set(change: Partial<ReplaySearch>): void
}

const FILTER_NAMES: Record<RowFilter, string> = { lost: 'Regressed', gained: 'Improved', errors: 'Errors' }

/** The loaded rows; the table and the drawer share them. */
function useRows(replay: Schemas['ReplayDetail'], only: RowFilter | undefined) {
  const running = isRunning(replay)
  const list = api.useInfiniteQuery('get', '/api/v1/replays/{replayId}/rows', { params: { path: { replayId: replay.id }, query: { limit: 50 } } }, { ...cursorPaging, meta: { quiet: true }, refetchInterval: running ? 3000 : false, staleTime: running ? 0 : 60_000 })
  const { refetch } = list
  // The last rows finish after the last poll.
  useEffect(() => {
    if (replay.finished_at !== null) void refetch({ cancelRefetch: false })
  }, [replay.finished_at, refetch])
  const loaded = list.data?.pages.flatMap((page) => page.rows) ?? []
  return { list, loaded, rows: only ? loaded.filter((row) => rowMatches(row, only)) : loaded }
}

function RowTable({ replay, search, set }: RowsProps) {
  const { list, loaded, rows } = useRows(replay, search.only)
  const cost = moneyColumn(loaded.flatMap((row) => [row.before.cost_usd, row.after?.cost_usd]))
  const columns: Column<Row>[] = [
    { key: 'input', header: 'Input', className: 'max-w-56 min-w-32 truncate', cell: (row) => row.input ?? <span className="text-muted">request {row.log_id}</span> },
    { key: 'before', header: 'Original answer', className: 'max-w-64 truncate', from: 'md', cell: (row) => <Text row={row} call={row.before} /> },
    { key: 'after', header: 'Replay answer', className: 'max-w-64 truncate', from: 'sm', cell: (row) => <Text row={row} call={row.after} /> },
    ...(replay.evals.length > 0 ? [{ key: 'scores', header: 'Evals', cell: (row: Row) => <Verdicts row={row} /> }] : []),
    { key: 'cost', header: 'Cost', number: true, from: 'lg', cell: (row) => <Pair before={cost(row.before.cost_usd)} after={row.after && cost(row.after.cost_usd)} /> },
    { key: 'latency', header: 'Latency', number: true, from: 'lg', cell: (row) => <Pair before={duration(row.before.latency_ms)} after={row.after && duration(row.after.latency_ms)} /> },
  ]
  return (
    <Section
      flush
      title="Requests"
      aside={
        <label className="flex items-center gap-2">
          <span className="text-xs text-muted">Show</span>
          <Select aria-label="Show requests" className="!w-32" value={search.only ?? ''} onChange={(event) => set({ only: ROW_FILTERS.find((one) => one === event.target.value) })} options={[{ value: '', label: 'All' }, ...ROW_FILTERS.map((value) => ({ value, label: FILTER_NAMES[value] }))]} />
        </label>
      }
    >
      {list.isError ? (
        <div className="p-3">
          <ErrorPanel error={list.error} what="the requests" onRetry={() => void list.refetch()} />
        </div>
      ) : !list.data ? (
        <SkeletonRows rows={6} />
      ) : loaded.length === 0 ? (
        <Empty title="No requests" />
      ) : (
        <>
          {rows.length === 0 ? (
            <NoMatch what="loaded requests" onClear={() => set({ only: undefined })} />
          ) : (
            <Table label="Requests" columns={columns} rows={rows} rowKey={(row) => row.log_id} selected={search.row ?? null} onOpen={(row) => set({ row: row.log_id })} />
          )}
          <Pager shown={rows.length} what={search.only ? `of ${plural(loaded.length, 'loaded request')}` : loaded.length === 1 ? 'request' : 'requests'} more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
        </>
      )}
    </Section>
  )
}

function Text({ row, call }: { row: Row; call: Schemas['ReplayCall'] | null }) {
  if (row.state === 'error' && call !== row.before) return <span className="text-err" title={row.error ?? undefined}>{row.error ?? 'could not be sent'}</span>
  if (!call) return <span className="text-muted">pending</span>
  if (call.status >= 400) return <Badge tone="err">{call.status}</Badge>
  return call.answer === null ? <span className="text-muted">no text</span> : <span title={call.answer.slice(0, 400)}>{call.answer.slice(0, 200)}</span>
}

function Pair({ before, after }: { before: string; after: string | null }) {
  return (
    <span className="whitespace-nowrap">
      <span className="text-muted">{before} →</span> {after ?? '–'}
    </span>
  )
}

/** How many evals pass before and after. */
function Verdicts({ row }: { row: Row }) {
  const judged = row.scores.filter((score) => score.before && score.after)
  if (judged.length === 0) return <span className="text-muted">{row.scores.some((score) => score.error) ? 'error' : '–'}</span>
  const before = judged.filter((score) => score.before?.passed).length
  const after = judged.filter((score) => score.after?.passed).length
  const label = (passed: number) => (judged.length === 1 ? (passed === 1 ? 'passed' : 'failed') : `${passed} of ${judged.length}`)
  return (
    <span className="inline-flex items-center gap-1 whitespace-nowrap">
      <span className="text-muted max-sm:sr-only">{label(before)} →</span>
      <Badge tone={after === judged.length ? 'ok' : after < before ? 'err' : after > before ? 'ok' : 'muted'}>{label(after)}</Badge>
    </span>
  )
}

/** The page beside the drawer of one row. The keys j and k go to the next and the previous row. */
function WithDrawer({ replay, search, set, children }: RowsProps & { children: ReactNode }) {
  const { rows, loaded } = useRows(replay, search.only)
  const at = rows.findIndex((row) => row.log_id === search.row)
  const row = rows[at] ?? loaded.find((one) => one.log_id === search.row)
  const open = search.row !== undefined
  const step = (by: number) => {
    const next = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))]
    if (next) set({ row: next.log_id })
  }
  useShortcuts({ j: () => step(1), k: () => step(-1) }, rows.length > 0)
  return (
    <DockedDrawer open={open} onClose={() => set({ row: undefined })} label="Original and replay" head={<RowHead position={at < 0 ? null : { at: at + 1, of: rows.length }} onStep={step} />} content={row ? <RowContent row={row} evals={replay.evals} /> : <p className="p-4 text-muted">This request is not among the loaded ones.</p>}>
      <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">{children}</div>
    </DockedDrawer>
  )
}

export const ReplayRows = { Table: RowTable, WithDrawer }
