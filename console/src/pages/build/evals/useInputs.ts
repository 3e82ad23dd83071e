import { useMemo } from 'react'
import { api, type Schemas } from '@/api/client'

/** Inputs of the first cases by case id, to label results. */
export function useCaseInputs(run: Schemas['EvalRun']): ReadonlyMap<string, string> {
  // Must differ from the limit of the case grid: the cache key must not mix infinite and plain queries.
  const cases = api.useQuery('get', '/api/v1/datasets/{datasetId}/cases', { params: { path: { datasetId: run.dataset_id ?? '' }, query: { version: run.dataset_version, limit: 199 } } }, { enabled: run.dataset_id !== null, staleTime: 60_000, retry: false })
  return useMemo(() => new Map((cases.data?.cases ?? []).map((one) => [one.id, typeof one.input === 'string' ? one.input : JSON.stringify(one.input)])), [cases.data])
}

/** Label of a result: the case input, or the id. */
export function subjectOf({ case_id, log_id }: { case_id: string | null; log_id: number | null }, inputs: ReadonlyMap<string, string>): string {
  if (case_id === null) return `request ${log_id}`
  return inputs.get(case_id) ?? `case …${case_id.slice(-8)}`
}
