/**
 * The rows of the logs page: pages from the list, older ones as one scrolls, newer ones from the live tail. While somebody
 * reads further down, or has paused, new rows wait and are only counted.
 */
import { keepPreviousData } from '@tanstack/react-query'
import { useEffect, useEffectEvent, useMemo, useReducer, useState } from 'react'
import { api, client, take } from '@/api/client'
import { useLiveLogs, type LogRow } from '@/api/logs'
import { inPages } from '@/api/pages'
import { mergeNewestFirst } from '@/lib/merge'
import { resolveRange, type RangeSearch } from '@/lib/range'
import { filterOf, type LogsSearch } from './search'

const PAGE = 200
/** So many live rows are kept; then the list starts anew from its top. */
const MOST_LIVE = 5000
/** Words of new rows are indexed a moment after the rows are there. */
const SEARCH_WAIT_MS = 1500

interface Newer {
  /** The question that these rows answer. */
  name: string
  /** In the list already. */
  shown: readonly LogRow[]
  /** Waiting above it. */
  waiting: readonly LogRow[]
  /** Those of `shown` that came last. */
  latest: ReadonlySet<number>
  /** How many have come in all, shown or waiting. */
  arrived: number
}
const NOTHING: Newer = { name: '', shown: [], waiting: [], latest: new Set(), arrived: 0 }

type Change = { name: string } & ({ rows: readonly LogRow[]; hold: boolean } | { show: true })

function reduce(before: Newer, change: Change): Newer {
  const state = before.name === change.name ? before : { ...NOTHING, name: change.name }
  if ('show' in change) return { ...state, shown: mergeNewestFirst(state.waiting, state.shown), waiting: [], latest: idsOf(state.waiting) }
  const rows = change.rows.toSorted((a, b) => b.id - a.id)
  const arrived = state.arrived + rows.length
  if (change.hold) return { ...state, arrived, waiting: mergeNewestFirst(rows, state.waiting).slice(0, MOST_LIVE) }
  return { ...state, arrived, shown: mergeNewestFirst(rows, state.shown), latest: idsOf(rows) }
}

function idsOf(rows: readonly LogRow[]): ReadonlySet<number> {
  return new Set(rows.map((row) => row.id))
}

export function useLogRows(search: LogsSearch & RangeSearch, hold: boolean) {
  // How often the list began anew, and for which question.
  const [anew, setAnew] = useState({ asked: '', times: 0 })
  const { from, to, range, q } = search
  // A span is counted from when it was asked for, so that the list does not jump while it is read.
  const bounds = useMemo(() => resolveRange({ from, to, range }, Date.now()), [from, to, range, anew.times])
  const live = bounds.span !== null
  const filter = filterOf(search)
  const asked = JSON.stringify([filter, q, from, to, range])
  const query = { ...filter, q, from: bounds.from, ...(live ? {} : { to: bounds.to }) }
  const name = JSON.stringify([query, anew.times])
  const [newer, change] = useReducer(reduce, NOTHING)
  const { shown, waiting, latest, arrived } = newer.name === name ? newer : NOTHING
  const beginAnew = () => setAnew((now) => ({ asked, times: now.times + 1 }))

  const list = api.useInfiniteQuery(
    'get',
    '/api/v1/logs',
    { params: { query: { ...query, limit: PAGE } } },
    {
      ...inPages,
      staleTime: Number.POSITIVE_INFINITY,
      // Coming back to a question is asking it again.
      gcTime: 0,
      // Rows never change, and comparing a hundred thousand of them with each new page takes long.
      structuralSharing: false,
      refetchOnWindowFocus: false,
      ...(anew.asked === asked && { placeholderData: keepPreviousData }),
    },
  )
  const pages = list.data?.pages
  const older = useMemo(() => pages?.flatMap((page) => page.logs) ?? [], [pages])
  const rows = useMemo(() => mergeNewestFirst(shown, older), [shown, older])

  useEffect(() => {
    if (shown.length > MOST_LIVE) beginAnew()
  }, [shown.length > MOST_LIVE])

  const newest = rows[0]?.id
  const catchUp = useEffectEvent(() => {
    take(client.GET('/api/v1/logs', { params: { query: { ...query, after_id: newest, limit: PAGE } } }))
      // More than a page came meanwhile: better anew than with a hole.
      .then(({ logs, next_cursor }) => (next_cursor === null ? change({ name, rows: logs, hold }) : beginAnew()))
      // The next new row, or the next connection, asks again.
      .catch(() => undefined)
  })
  const [stirred, stir] = useState(0)
  useEffect(() => {
    if (stirred === 0) return
    const timer = setTimeout(catchUp, SEARCH_WAIT_MS)
    return () => clearTimeout(timer)
  }, [stirred])

  const state = useLiveLogs(filter, (fresh) => (q ? stir((now) => now + 1) : change({ name, rows: fresh, hold })), live)
  const connected = state.kind === 'open' && list.isSuccess
  useEffect(() => {
    // What came between the list and the stream, or while the stream was cut off.
    if (connected) catchUp()
  }, [connected, name])

  return { list, rows, waiting, latest, arrived, live, state, bounds, showWaiting: () => change({ name, show: true }) }
}
