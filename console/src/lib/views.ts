/** Saved views: what the API stores of a page's address, and back. */
import { hasField, joinTerms } from './query'
import { stringifySearch } from './search'

/** The parameters of the address that make a view. */
export type ViewSearch = Readonly<Record<string, string>>

export interface ViewContent {
  query: string
  sort: string | null
  by: string | null
  range: string | null
}

/** The parameters of a view among those of an address. */
export function viewSearchOf(search: Readonly<Partial<Record<keyof typeof NAMES, string | undefined>>>): ViewSearch {
  return Object.fromEntries(Object.keys(NAMES).flatMap((name) => {
    const value = search[name as keyof typeof NAMES]
    return value === undefined ? [] : [[name, value]]
  }))
}
const NAMES = { query: true, sort: true, by: true, range: true, from: true, to: true, own: true } as const

/** Own calls are part of the query of a view: a page leaves them out unless the query names a source. */
const WITH_OWN_CALLS = 'source:*'

export function contentOf(search: ViewSearch): ViewContent {
  const { query = '', sort, by, range, from, to, own } = search
  const withOwn = own === 'show' && !hasField(query, 'source')
  return {
    query: withOwn ? joinTerms(query, WITH_OWN_CALLS) : query,
    sort: sort ?? null,
    by: by ?? null,
    range: from && to ? `${from}..${to}` : (range ?? null),
  }
}

export function searchOf({ query, sort, by, range }: { query: string; sort?: string | null; by?: string | null; range?: string | null }): ViewSearch {
  const [from, to] = range?.split('..') ?? []
  return {
    ...(query !== '' && { query }),
    ...(sort && { sort }),
    ...(by && { by }),
    ...(from && to ? { from, to } : range ? { range } : {}),
  }
}

/** Whether the address shows the view. A view without a range, or without a group, is the same in all of them. */
export function isShowing(current: ViewSearch, view: ViewSearch): boolean {
  const [now, then] = [searchOf(contentOf(current)), searchOf(contentOf(view))]
  const anyRange = then['range'] === undefined && then['from'] === undefined
  const { range, from, to, ...rest } = now
  const { by, ...shown } = anyRange ? rest : now
  return address(then['by'] === undefined || by === undefined ? shown : { ...shown, by }) === address(then)
}

function address(search: ViewSearch): string {
  return stringifySearch(Object.fromEntries(Object.entries(search).sort(([one], [other]) => one.localeCompare(other))))
}
