/** Search parameters of the usage page. */
import type { OwnCalls } from '@/lib/query'
import { oneOf, text, type RawSearch } from '@/lib/search'

export const GROUPS = ['model', 'provider', 'key', 'team', 'app', 'user', 'prompt', 'error', 'tool'] as const
export type Group = (typeof GROUPS)[number]

export const RANK_FIELDS = ['cost', 'requests', 'errors', 'in', 'out', 'p95'] as const
export type RankField = (typeof RANK_FIELDS)[number]

export interface UsageSearch {
  view?: 'spend' | 'prices'
  by?: Group
  /** A query of the query language. */
  query?: string
  own?: OwnCalls
  /** Order of the table, the highest first. */
  sort?: RankField
  /** Search text of the price table. */
  q?: string
}

export function readUsageSearch(search: RawSearch): UsageSearch {
  return { view: oneOf(search['view'], ['spend', 'prices'] as const), by: oneOf(search['by'], GROUPS), query: text(search['query']), own: oneOf(search['own'], ['show'] as const), sort: oneOf(search['sort'], RANK_FIELDS), q: text(search['q']) }
}
