/**
 * Rows of the logs page: pages of the list query for older rows, and the live stream for newer ones. While the user has
 * scrolled down or paused, new rows are pending and only counted. The stream is the same for all tabs, so rows that
 * match a query are fetched from the server when the stream says that there are new ones.
 */
import { keepPreviousData } from '@tanstack/react-query'
import { useEffect, useEffectEvent, useMemo, useReducer, useRef, useState } from 'react'
import { api, client, unwrap } from '@/api/client'
import { useLiveLogs, type LogRow } from '@/api/logs'
import { cursorPaging } from '@/api/paging'
import { mergeNewestFirst } from '@/lib/merge'
import { usePrefs } from '@/lib/prefs'
import { resolveRange, type RangeSearch } from '@/lib/range'
import { OWN_CALLS_EXCLUDED, OWN_SOURCES, searchedWords } from '@/lib/query'
import { effectiveQuery, type LogsSearch } from './search'

const PAGE_SIZE = 200
/** Beyond this number of live rows the list is reloaded from the top. */
const MAX_LIVE_ROWS = 2000
/** New rows that match a query are fetched at most this often; the full-text index lags behind new rows. */
const CATCH_UP_MS = 500
const SEARCH_INDEX_DELAY_MS = 1500

interface LiveRows {
  /** Key of the query that these rows belong to. */
  name: string
  /** Rows already in the list. */
  shown: readonly LogRow[]
  /** Rows received while paused, not yet in the list. */
  pending: readonly LogRow[]
  /** Ids of the most recently added rows of `shown`. */
  latest: ReadonlySet<number>
  /** Total number of rows received. */
  received: number
}
const NO_LIVE_ROWS: LiveRows = { name: '', shown: [], pending: [], latest: new Set(), received: 0 }

type LiveRowsAction = { name: string } & ({ rows: readonly LogRow[]; paused: boolean } | { show: true })

function reduce(before: LiveRows, action: LiveRowsAction): LiveRows {
  const state = before.name === action.name ? before : { ...NO_LIVE_ROWS, name: action.name }
  if ('show' in action) return { ...state, shown: mergeNewestFirst(state.pending, state.shown), pending: [], latest: idsOf(state.pending) }
  const rows = action.rows.toSorted((a, b) => b.id - a.id)
  const received = state.received + rows.length
  if (action.paused) return { ...state, received, pending: mergeNewestFirst(rows, state.pending).slice(0, MAX_LIVE_ROWS) }
  return { ...state, received, shown: mergeNewestFirst(rows, state.shown), latest: idsOf(rows) }
}

function idsOf(rows: readonly LogRow[]): ReadonlySet<number> {
  return new Set(rows.map((row) => row.id))
}

export function useLogRows(search: LogsSearch & RangeSearch, paused: boolean) {
  // Number of reloads of the list, and the query of the last one.
  const [restarts, setRestarts] = useState({ queryKey: '', count: 0 })
  const { from, to, range, sort } = search
  const { zone } = usePrefs()
  // Resolve a relative span once per load so that the list does not shift while it is read.
  const bounds = useMemo(() => resolveRange({ from, to, range }, Date.now(), zone), [from, to, range, zone, restarts.count])
  // In another order new rows have no place at the top.
  const live = bounds.span !== null && sort === undefined
  const text = effectiveQuery(search)
  const queryKey = JSON.stringify([text, sort, from, to, range])
  const query = { query: text || undefined, sort, from: bounds.from, ...(bounds.span === null ? { to: bounds.to } : {}) }
  const name = JSON.stringify([query, restarts.count])
  const [liveRows, dispatch] = useReducer(reduce, NO_LIVE_ROWS)
  const { shown, pending, latest, received } = liveRows.name === name ? liveRows : NO_LIVE_ROWS
  const restart = () => setRestarts((now) => ({ queryKey, count: now.count + 1 }))

  const list = api.useInfiniteQuery(
    'get',
    '/api/v1/logs',
    { params: { query: { ...query, limit: PAGE_SIZE } } },
    {
      ...cursorPaging,
      staleTime: Number.POSITIVE_INFINITY,
      // Returning to a query refetches it.
      gcTime: 0,
      // Rows are immutable, and deep comparison of 100,000 rows per page is slow.
      structuralSharing: false,
      refetchOnWindowFocus: false,
      ...(restarts.queryKey === queryKey && { placeholderData: keepPreviousData }),
    },
  )
  const pages = list.data?.pages
  const older = useMemo(() => pages?.flatMap((page) => page.logs) ?? [], [pages])
  const rows = useMemo(() => (live ? mergeNewestFirst(shown, older) : older), [live, shown, older])
  const lastPage = pages?.at(-1)

  useEffect(() => {
    if (shown.length > MAX_LIVE_ROWS) restart()
  }, [shown.length > MAX_LIVE_ROWS])

  const newest = rows[0]?.id
  const catchUp = useEffectEvent(() => {
    unwrap(client.GET('/api/v1/logs', { params: { query: { ...query, after_id: newest, limit: PAGE_SIZE } } }))
      // More than one page is missing: reload rather than leave a gap.
      .then(({ logs, next_cursor }) => (next_cursor === null ? dispatch({ name, rows: logs, paused }) : restart()))
      // The next row or reconnect retries.
      .catch(() => undefined)
  })
  const delay = searchedWords(text).length > 0 ? SEARCH_INDEX_DELAY_MS : CATCH_UP_MS
  const waiting = useRef<ReturnType<typeof setTimeout> | null>(null)
  const catchUpSoon = () => {
    waiting.current ??= setTimeout(() => {
      waiting.current = null
      catchUp()
    }, delay)
  }
  useEffect(
    () => () => {
      if (waiting.current !== null) clearTimeout(waiting.current)
      waiting.current = null
    },
    [name],
  )

  const onRows = (newRows: LogRow[]) => {
    if (text !== '' && text !== OWN_CALLS_EXCLUDED) return catchUpSoon()
    const listed = text === '' ? newRows : newRows.filter((row) => !OWN_SOURCES.includes(row.source))
    if (listed.length > 0) dispatch({ name, rows: listed, paused })
  }
  const state = useLiveLogs(() => true, onRows, live)
  const connected = state.kind === 'open' && list.isSuccess
  useEffect(() => {
    // Fetch rows missed between the list query and the stream, or while disconnected.
    if (connected) catchUp()
  }, [connected, name])

  return { list, rows, query, lastPage, pending, latest, received, live, state, bounds, showPending: () => dispatch({ name, show: true }) }
}
