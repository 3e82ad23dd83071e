/** Which requests become test cases or are evaluated: those with the given ids, or the latest that match a query. */
import { plural } from '@/lib/format'

export interface MatchingRows {
  query: string
  from: string
  to?: string | undefined
  /** Null if there are too many to count. */
  count: number | null
}

export type ChosenRows = { ids: readonly number[] } | MatchingRows

/** The API selects at most this many by a query. */
export const MAX_MATCHING = 1000

export function isOne(rows: ChosenRows): boolean {
  return 'ids' in rows && rows.ids.length === 1
}

/** The number of rows that are used: all of them, or the latest. */
export function usedCount(rows: ChosenRows): number {
  return 'ids' in rows ? rows.ids.length : Math.max(1, Math.min(rows.count ?? MAX_MATCHING, MAX_MATCHING))
}

/** `3 requests`, `the latest 1,000 matching requests`. */
export function rowsText(rows: ChosenRows): string {
  if ('ids' in rows) return plural(rows.ids.length, 'request')
  const used = usedCount(rows)
  return rows.count !== null && rows.count <= used ? plural(used, 'matching request') : `the latest ${plural(used, 'matching request')}`
}

/** The selection as a request has it. */
export function selectionOf(rows: ChosenRows): { log_ids: number[] } | { query: string; from: string; to?: string; limit: number } {
  if ('ids' in rows) return { log_ids: [...rows.ids] }
  return { query: rows.query, from: rows.from, ...(rows.to !== undefined && { to: rows.to }), limit: usedCount(rows) }
}

/** What became of a selection by query besides the rows that were used; empty if that is all. */
export function leftOutText(result: { skipped?: number | null; partial?: boolean | null; scanned_to?: string | null }, what: string): string {
  const skipped = result.skipped ? `${plural(result.skipped, 'request')} cannot be ${what}.` : ''
  const partial = result.partial ? `Only requests since ${result.scanned_to ?? 'a later time'} were looked at; narrow the query.` : ''
  return [skipped, partial].filter((part) => part !== '').join(' ')
}
