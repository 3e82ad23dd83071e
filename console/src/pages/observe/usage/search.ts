/** What the address of the usage page can say. */
import { oneOf, text, type RawSearch } from '@/lib/search'

export const GROUPS = ['model', 'provider', 'key', 'team', 'app', 'user', 'prompt'] as const
export type Group = (typeof GROUPS)[number]

export interface UsageSearch {
  view?: 'spend' | 'prices'
  by?: Group
  /** In the prices. */
  q?: string
}

export function readUsageSearch(search: RawSearch): UsageSearch {
  return { view: oneOf(search['view'], ['spend', 'prices'] as const), by: oneOf(search['by'], GROUPS), q: text(search['q']) }
}
