import { Link, useNavigate } from '@tanstack/react-router'
import { useMemo } from 'react'
import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { Meter } from '@/charts/Bars'
import { ago, percent, time, integer } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { runTitle } from '@/lib/runs'
import { useNow } from '@/lib/useNow'
import { Empty, ErrorPanel, NoMatch, Pager, Section, Select, SkeletonRows, Status, Table, type Column, type Tone } from '@/ui'
import { RUN_STATES, type EvalsSearch } from './search'

type Run = Schemas['EvalRun']

interface RunListProps {
  evalId?: number
  datasetId?: string
  status?: EvalsSearch['status']
  onStatus?: (status: EvalsSearch['status']) => void
}

export const RUN_TONE: Record<Run['status'], Tone> = { queued: 'muted', running: 'accent', completed: 'ok', failed: 'err', cancelled: 'warn' }

export function isRunning(run: Pick<Run, 'status'>): boolean {
  return run.status === 'queued' || run.status === 'running'
}

export function passRate(run: Pick<Run, 'passed' | 'failed'>): number | null {
  const judged = run.passed + run.failed
  return judged === 0 ? null : run.passed / judged
}

/** Names of the datasets by id. */
export function useDatasetNames(): ReadonlyMap<string, string> {
  const datasets = api.useQuery('get', '/api/v1/datasets', { params: { query: { limit: 200 } } }, { staleTime: 60_000 })
  return useMemo(() => new Map(datasets.data?.datasets.map((one) => [one.id, one.name])), [datasets.data])
}

/** What was judged. On a phone the state has no column of its own. */
function RunName({ run, dataset }: { run: Run; dataset: string | undefined }) {
  return (
    <>
      <span className="name block truncate" title={`Run ${run.id}`}>
        {runTitle(run, dataset)}
      </span>
      <span className="text-xs text-muted sm:hidden">
        <Status tone={RUN_TONE[run.status]}>{run.status}</Status>
      </span>
    </>
  )
}

/** Runs, newest first. Polls while a run is active. */
export function RunList({ evalId, datasetId, status, onStatus }: RunListProps) {
  const navigate = useNavigate()
  const { zone } = usePrefs()
  const now = useNow(15_000)
  const evals = api.useQuery('get', '/api/v1/evals', { params: { query: { limit: 200 } } }, { enabled: evalId === undefined, staleTime: 60_000 })
  const names = useDatasetNames()
  const list = api.useInfiniteQuery(
    'get',
    '/api/v1/evals/runs',
    { params: { query: { eval_id: evalId, dataset_id: datasetId, status, limit: 50 } } },
    { ...cursorPaging, meta: { quiet: true }, refetchInterval: (query) => (query.state.data?.pages.some((page) => page.runs.some(isRunning)) ? 2000 : false) },
  )
  const runs = list.data?.pages.flatMap((page) => page.runs) ?? []
  const columns: Column<Run>[] = [
    { key: 'run', header: 'Run', className: 'w-full max-w-0 min-w-40 max-sm:py-1', cell: (row) => <RunName run={row} dataset={names.get(row.dataset_id ?? '')} /> },
    ...(evalId === undefined ? [{ key: 'eval', header: 'Eval', className: 'max-w-48 truncate', from: 'md' as const, cell: (row: Run) => evals.data?.evals.find((one) => one.id === row.eval_id)?.name ?? row.eval_id }] : []),
    { key: 'status', header: 'State', from: 'sm', cell: (row) => <Status tone={RUN_TONE[row.status]}>{row.status}</Status> },
    {
      key: 'passed',
      header: 'Passed',
      className: 'min-w-24',
      cell: (row) => (
        <div className="pb-1">
          <span className="text-xs tabular-nums">{percent(passRate(row))}</span>
          <Meter share={passRate(row) ?? 0} color="var(--ok)" />
        </div>
      ),
    },
    { key: 'total', header: 'Judged', number: true, className: 'whitespace-nowrap', from: 'sm', cell: (row) => `${integer(row.completed)} of ${integer(row.total)}` },
    { key: 'at', header: 'Started', from: 'sm', cell: (row) => <time dateTime={row.created_at} title={time(row.created_at, zone, 'full')} className="whitespace-nowrap">{ago(row.created_at, now)}</time> },
  ]
  return (
    <>
      {onStatus && (runs.length > 0 || status) && (
        <label className="flex items-center gap-2">
          <span className="text-muted">State</span>
          <Select className="w-36" value={status ?? ''} onChange={(event) => onStatus(RUN_STATES.find((one) => one === event.target.value))} options={[{ value: '', label: 'Any' }, ...RUN_STATES]} />
        </label>
      )}
      {list.isError ? (
        <ErrorPanel error={list.error} what="the runs" onRetry={() => void list.refetch()} />
      ) : !list.data ? (
        <Section flush>
          <SkeletonRows rows={5} />
        </Section>
      ) : runs.length === 0 ? (
        status && onStatus ? <NoMatch what="runs" onClear={() => onStatus(undefined)} /> : <Empty title="No runs yet" action={onStatus && <Link to="/datasets" className="text-accent underline">Choose a dataset</Link>}>A run judges logged requests or the cases of a dataset, and can be compared with an earlier one.</Empty>
      ) : (
        <Section flush>
          <Table label="Runs" columns={columns} rows={runs} rowKey={(row) => row.id} onOpen={(row) => void navigate({ to: '/evals/runs/$runId', params: { runId: String(row.id) } })} />
          <Pager shown={runs.length} what="runs" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
        </Section>
      )}
    </>
  )
}
