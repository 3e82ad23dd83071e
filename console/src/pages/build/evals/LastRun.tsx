import { Link } from '@tanstack/react-router'
import { useMemo } from 'react'
import { api, type Schemas } from '@/api/client'
import { ago, NO_VALUE, percent } from '@/lib/format'
import { Status } from '@/ui'
import { isRunning, passRate, RUN_TONE } from './RunList'

type Run = Schemas['EvalRun']

/** The newest run of each eval or dataset, among the newest of the organization. */
export function useLastRuns(by: 'eval_id' | 'dataset_id'): ReadonlyMap<string, Run> {
  // Must differ from the limit of the list of runs: the cache key must not mix infinite and plain queries.
  const runs = api.useQuery('get', '/api/v1/evals/runs', { params: { query: { limit: 199 } } }, { staleTime: 15_000, meta: { quiet: true } })
  return useMemo(() => new Map((runs.data?.runs ?? []).toReversed().map((run) => [String(run[by]), run])), [runs.data, by])
}

/** Pass rate and time of a run, with a link to it. */
export function LastRun({ run, now }: { run: Run | undefined; now: number }) {
  if (!run) return <span className="text-muted">{NO_VALUE}</span>
  const rate = passRate(run)
  return (
    <Link to="/evals/runs/$runId" params={{ runId: String(run.id) }} className="flex items-center gap-x-2 whitespace-nowrap hover:underline max-sm:flex-wrap">
      {rate === null || isRunning(run) ? <Status tone={RUN_TONE[run.status]}>{run.status}</Status> : <span className="tabular-nums">{percent(rate)} passed</span>}
      <span className="text-muted">{ago(run.created_at, now)}</span>
    </Link>
  )
}
