import { api, type Schemas } from '@/api/client'
import { isRunning } from './RunList'

/** Calls, cost and latency of a run, from its log rows. */
export function useRunUsage(run: Schemas['EvalRun']): { usage: Schemas['Summary'] | undefined } {
  const from = run.created_at
  // Rounded up to the minute after the end, so that the last rows are included and the key stays the same.
  const to = run.finished_at === null ? undefined : new Date(Math.ceil(Date.parse(run.finished_at) / 60_000 + 1) * 60_000).toISOString()
  const query = api.useQuery('get', '/api/v1/usage/summary', { params: { query: { query: `metadata.eval_run_id:${run.id}`, from, to } } }, { meta: { quiet: true }, staleTime: 10_000, refetchInterval: isRunning(run) ? 5000 : false })
  return { usage: query.data }
}
