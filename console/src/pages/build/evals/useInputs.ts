import { useMemo } from 'react'
import { api, type Schemas } from '@/api/client'

/** The inputs of the first cases, by the case's id: enough to know what a verdict is about. */
export function useInputs(run: Schemas['EvalRun']): ReadonlyMap<string, string> {
  // Not the limit of the grid of cases: the same question must not be kept once in pages and once as a whole.
  const cases = api.useQuery('get', '/api/v1/datasets/{datasetId}/cases', { params: { path: { datasetId: run.dataset_id ?? '' }, query: { version: run.dataset_version, limit: 199 } } }, { enabled: run.dataset_id !== null, staleTime: 60_000, retry: false })
  return useMemo(() => new Map((cases.data?.cases ?? []).map((one) => [one.id, typeof one.input === 'string' ? one.input : JSON.stringify(one.input)])), [cases.data])
}

/** What a verdict is about, in words where they are known. */
export function subjectOf({ case_id, log_id }: { case_id: string | null; log_id: number | null }, inputs: ReadonlyMap<string, string>): string {
  if (case_id === null) return `request ${log_id}`
  return inputs.get(case_id) ?? `case …${case_id.slice(-8)}`
}
