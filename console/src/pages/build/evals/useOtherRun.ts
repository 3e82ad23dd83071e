import { useQuery } from '@tanstack/react-query'
import { client, unwrap, type Schemas } from '@/api/client'

type Result = Schemas['EvalResult']

const PAGE = 200
/** Verdicts of the other run that are loaded. */
const MAX_PAGES = 10

/** What a verdict is about: the case, or the logged request. */
export function itemKey({ case_id, log_id }: Pick<Result, 'case_id' | 'log_id'>): string {
  return case_id ?? `log ${log_id}`
}

export interface OtherRun {
  run: Schemas['EvalRun']
  results: ReadonlyMap<string, Result>
}

/** The verdicts of the run to compare with, by item. */
export function useOtherRun(runId: number | undefined): OtherRun | undefined {
  const query = useQuery({
    queryKey: ['eval-run-by-item', runId],
    enabled: runId !== undefined,
    staleTime: 60_000,
    queryFn: async ({ signal }) => {
      const path = { runId: runId ?? 0 }
      const run = await unwrap(client.GET('/api/v1/evals/runs/{runId}', { params: { path }, signal }))
      const results = new Map<string, Result>()
      let cursor: string | undefined
      for (let page = 0; page < MAX_PAGES; page++) {
        const found = await unwrap(client.GET('/api/v1/evals/runs/{runId}/results', { params: { path, query: { limit: PAGE, cursor } }, signal }))
        for (const result of found.results) results.set(itemKey(result), result)
        if (found.next_cursor === null) break
        cursor = found.next_cursor
      }
      return { run, results }
    },
  })
  return query.data
}
