/**
 * The time range of the console: a span until now (`?range=24h`) or two instants (`?from=…&to=…`). Navigation keeps it
 * in the URL.
 */
import { instant, oneOf, type RawSearch } from './search'

export const SPANS = ['1h', '6h', '24h', '7d', '30d', '90d'] as const
export type Span = (typeof SPANS)[number]

const SPAN_MS: Record<Span, number> = { '1h': 3.6e6, '6h': 2.16e7, '24h': 8.64e7, '7d': 6.048e8, '30d': 2.592e9, '90d': 7.776e9 }
export const SPAN_NAMES: Record<Span, string> = {
  '1h': 'Last hour',
  '6h': 'Last 6 hours',
  '24h': 'Last 24 hours',
  '7d': 'Last 7 days',
  '30d': 'Last 30 days',
  '90d': 'Last 90 days',
}
export const DEFAULT_SPAN: Span = '24h'

export interface RangeSearch {
  range?: Span
  from?: string
  to?: string
}

export interface Range {
  from: string
  to: string
  interval: 'minute' | 'hour' | 'day' | 'week'
  /** The relative span, or null for an absolute range. */
  span: Span | null
}

export function parseRange(search: RawSearch): RangeSearch {
  const from = instant(search['from'])
  const to = instant(search['to'])
  if (from && to && from < to) return { from, to }
  const range = oneOf(search['range'], SPANS)
  return range ? { range } : {}
}

/**
 * Resolves search parameters to instants. The end of a span is rounded up to the next step after `now`, so that queries
 * within one step have the same cache key.
 */
export function resolveRange(search: RangeSearch, now: number): Range {
  if (search.from && search.to) {
    const length = Date.parse(search.to) - Date.parse(search.from)
    return { from: search.from, to: search.to, interval: intervalFor(length), span: null }
  }
  const span = search.range ?? DEFAULT_SPAN
  const step = SPAN_MS[span] <= SPAN_MS['6h'] ? 60_000 : 300_000
  const end = Math.ceil((now + 1) / step) * step
  return {
    from: new Date(end - SPAN_MS[span]).toISOString(),
    to: new Date(end).toISOString(),
    interval: intervalFor(SPAN_MS[span]),
    span,
  }
}

/** The preceding range of equal length. */
export function previousRange(range: Range): { from: string; to: string } {
  const from = Date.parse(range.from)
  return { from: new Date(from - (Date.parse(range.to) - from)).toISOString(), to: range.from }
}

/** The finest interval that yields at most about 120 buckets. */
export function intervalFor(length: number): Range['interval'] {
  if (length <= 2 * SPAN_MS['1h']) return 'minute'
  if (length <= 5 * SPAN_MS['24h']) return 'hour'
  if (length <= 180 * SPAN_MS['24h']) return 'day'
  return 'week'
}

export const INTERVAL_MS: Record<Range['interval'], number> = { minute: 60_000, hour: 3.6e6, day: 8.64e7, week: 6.048e8 }
