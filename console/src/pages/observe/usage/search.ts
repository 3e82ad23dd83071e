/** Search parameters of the usage page. */
import { oneOf, text, type RawSearch } from '@/lib/search'

export const GROUPS = ['model', 'provider', 'key', 'team', 'app', 'user', 'prompt'] as const
export type Group = (typeof GROUPS)[number]

export interface UsageSearch {
  view?: 'spend' | 'prices'
  by?: Group
  /** Search text of the price table. */
  q?: string
}

export function readUsageSearch(search: RawSearch): UsageSearch {
  return { view: oneOf(search['view'], ['spend', 'prices'] as const), by: oneOf(search['by'], GROUPS), q: text(search['q']) }
}
