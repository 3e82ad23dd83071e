/**
 * The rows of the logs page: pages from the list, older ones as one scrolls, newer ones from the live tail. While somebody
 * reads further down, or has paused, new rows wait and are only counted.
 */
import { keepPreviousData } from '@tanstack/react-query'
import { useCallback, useEffect, useMemo, useReducer, useRef, useState } from 'react'
import { api, client, take } from '@/api/client'
import { useLiveLogs, type LogRow } from '@/api/logs'
import { mergeNewestFirst } from '@/lib/merge'
import { resolveRange, type RangeSearch } from '@/lib/range'
import { filterOf, type LogsSearch } from './search'

const PAGE = 200
/** So many live rows are kept; then the list starts anew from its top. */
const MOST_LIVE = 5000
/** Words of new rows are indexed a moment after the rows are there. */
const SEARCH_WAIT_MS = 1500

interface Newer {
  /** In the list already. */
  shown: readonly LogRow[]
  /** Waiting above it. */
  waiting: readonly LogRow[]
}
type Change = { kind: 'rows'; rows: LogRow[]; hold: boolean } | { kind: 'show' } | { kind: 'reset' }

const NOTHING: Newer = { shown: [], waiting: [] }

function reduce(state: Newer, change: Change): Newer {
  if (change.kind === 'reset') return NOTHING
  if (change.kind === 'show') return state.waiting.length === 0 ? state : { shown: mergeNewestFirst(state.waiting, state.shown), waiting: [] }
  const sorted = change.rows.toSorted((a, b) => b.id - a.id)
  return change.hold ? { ...state, waiting: mergeNewestFirst(sorted, state.waiting).slice(0, MOST_LIVE) } : { ...state, shown: mergeNewestFirst(sorted, state.shown) }
}

export function useLogRows(search: LogsSearch & RangeSearch, hold: boolean) {
  const [anchor, setAnchor] = useState(0)
  const [newer, change] = useReducer(reduce, NOTHING)
  const { from, to, range, q } = search
  // A span is counted from when it was asked for, so that the list does not jump while it is read.
  const bounds = useMemo(() => resolveRange({ from, to, range }, Date.now()), [from, to, range, anchor])
  const live = bounds.span !== null
  const filter = filterOf(search)
  const query = { ...filter, q, from: bounds.from, ...(live ? {} : { to: bounds.to }) }
  const name = JSON.stringify(query)

  const list = api.useInfiniteQuery(
    'get',
    '/api/v1/logs',
    { params: { query: { ...query, limit: PAGE } } },
    {
      pageParamName: 'cursor',
      initialPageParam: undefined,
      getNextPageParam: (last: { next_cursor: string | null }) => last.next_cursor ?? undefined,
      staleTime: Number.POSITIVE_INFINITY,
      refetchOnWindowFocus: false,
      placeholderData: anchor > 0 ? keepPreviousData : undefined,
    },
  )
  const pages = list.data?.pages
  const older = useMemo(() => pages?.flatMap((page) => page.logs) ?? [], [pages])
  const rows = useMemo(() => mergeNewestFirst(newer.shown, older), [newer.shown, older])

  useEffect(() => change({ kind: 'reset' }), [name])
  useEffect(() => {
    if (newer.shown.length > MOST_LIVE) setAnchor((now) => now + 1)
  }, [newer.shown.length])

  const newest = rows[0]?.id
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const searchAgain = useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined
      take(client.GET('/api/v1/logs', { params: { query: { ...filter, q, after_id: newest ?? 0, limit: PAGE } } }))
        .then(({ logs }) => change({ kind: 'rows', rows: logs, hold }))
        // The next new row asks again.
        .catch(() => undefined)
    }, SEARCH_WAIT_MS)
  }, [name, newest, hold])
  useEffect(() => () => clearTimeout(timer.current), [name])

  const state = useLiveLogs(filter, (fresh) => (q ? searchAgain() : change({ kind: 'rows', rows: fresh, hold })), live && list.isSuccess)

  return { list, rows, waiting: newer.waiting, live, state, bounds, showWaiting: () => change({ kind: 'show' }) }
}
