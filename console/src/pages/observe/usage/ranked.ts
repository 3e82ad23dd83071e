/** The order of the table of usage. */
import type { Schemas } from '@/api/client'
import type { RankField } from './search'

type Row = Schemas['BreakdownRow']

const VALUES: Record<RankField, (row: Row) => number | null> = {
  cost: (row) => row.cost_usd,
  requests: (row) => row.requests,
  errors: (row) => row.errors,
  in: (row) => row.prompt_tokens,
  out: (row) => row.completion_tokens,
  p95: (row) => row.p95_ms,
}

/** The highest first, unknown values last. */
export function ranked(rows: readonly Row[], sort: RankField): Row[] {
  const value = VALUES[sort]
  return rows.toSorted((a, b) => (value(b) ?? -1) - (value(a) ?? -1))
}
