/** Search parameters of the logs page: the query, the order, and the request in the drawer. */
import { joinTerms, term, withOwnCalls } from '@/lib/query'
import { integer, oneOf, text, type RawSearch } from '@/lib/search'
import { LOG_TABS, type LogTab } from '../log/tabs'

export interface LogsSearch {
  /** A query of the query language. */
  query?: string
  /** `latency`, `cost`, `tokens`, or `time:asc`; newest first without it. */
  sort?: string
  /** Whether the gateway's own calls (playground, evals) are listed too. */
  own?: 'show'
  /** Id of the request in the drawer. */
  log?: number
  tab?: LogTab
}

export const SORT_FIELDS = ['time', 'latency', 'cost', 'tokens'] as const
export type SortField = (typeof SORT_FIELDS)[number]

/** Parameters of earlier versions, and the field of each: bookmarks go on working. */
const EARLIER: readonly [string, string][] = [
  ['provider', 'provider'],
  ['model', 'model'],
  ['status', 'status'],
  ['level', 'level'],
  ['source', 'source'],
  ['key_id', 'key'],
  ['user', 'user'],
  ['session_id', 'session'],
]

export function readLogsSearch(search: RawSearch): LogsSearch {
  const earlier = EARLIER.map(([name, field]) => {
    const value = text(search[name])
    return value && term(field, value)
  })
  return {
    query: joinTerms(text(search['query']), ...earlier, text(search['q'])) || undefined,
    sort: sortOf(search['sort']),
    own: oneOf(search['own'], ['show'] as const),
    log: integer(search['log']),
    tab: oneOf(search['tab'], LOG_TABS),
    // Removes the earlier parameters from the address.
    ...Object.fromEntries([...EARLIER.map(([name]) => name), 'q'].map((name) => [name, undefined])),
  }
}

/** The query that is sent. */
export function effectiveQuery({ query, own }: LogsSearch): string {
  return withOwnCalls(query ?? '', own)
}

export interface Order {
  field: SortField
  ascending: boolean
}

export function orderOf(sort: string | undefined): Order {
  const [field, direction] = (sort ?? 'time').split(':')
  return { field: oneOf(field, SORT_FIELDS) ?? 'time', ascending: direction === 'asc' }
}

/** A click on a header: highest first, then lowest first, then newest first again. */
export function nextSort(now: Order, field: SortField): string | undefined {
  if (now.field !== field) return field === 'time' ? undefined : field
  if (!now.ascending) return `${field}:asc`
  return undefined
}

function sortOf(value: unknown): string | undefined {
  const raw = text(value)
  return raw && /^(time|latency|cost|tokens)(:asc)?$/.test(raw) && raw !== 'time' ? raw : undefined
}
