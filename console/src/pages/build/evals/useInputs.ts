import { useMemo } from 'react'
import { api, type Schemas } from '@/api/client'
import { isRecord } from '@/api/error'

export interface CaseTexts {
  input: string
  /** Empty if the case expects nothing. */
  expected: string
  /** An output that is stored with the case. */
  output: string
}

/** Texts of the first cases by case id, to label results. */
export function useCaseTexts(run: Schemas['EvalRun']): ReadonlyMap<string, CaseTexts> {
  // Must differ from the limit of the case grid: the cache key must not mix infinite and plain queries.
  const cases = api.useQuery('get', '/api/v1/datasets/{datasetId}/cases', { params: { path: { datasetId: run.dataset_id ?? '' }, query: { version: run.dataset_version, limit: 199 } } }, { enabled: run.dataset_id !== null, staleTime: 60_000, retry: false })
  return useMemo(() => new Map((cases.data?.cases ?? []).map((one) => [one.id, { input: textOf(one.input), expected: textOf(one.expected), output: isRecord(one.metadata) ? textOf(one.metadata['output']) : '' }])), [cases.data])
}

/** Label of a result: the case input, or the id. */
export function subjectOf({ case_id, log_id }: { case_id: string | null; log_id: number | null }, texts: ReadonlyMap<string, CaseTexts>): string {
  if (case_id === null) return `request ${log_id}`
  return texts.get(case_id)?.input ?? `case …${case_id.slice(-8)}`
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}
