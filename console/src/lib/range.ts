/**
 * The time range of the console: a span until now (`?range=24h`), a part of the calendar (`?range=today`) or two instants
 * (`?from=…&to=…`). Navigation keeps it in the URL.
 */
import type { Zone } from './format'
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

/** Days and months of the displayed time zone. */
export const CALENDAR = ['today', 'yesterday', 'this-month', 'last-month'] as const
export type CalendarRange = (typeof CALENDAR)[number]
export const CALENDAR_NAMES: Record<CalendarRange, string> = { today: 'Today', yesterday: 'Yesterday', 'this-month': 'This month', 'last-month': 'Last month' }

export function rangeName(range: RangeSearch['range']): string {
  const name = range ?? DEFAULT_SPAN
  return isCalendar(name) ? CALENDAR_NAMES[name] : SPAN_NAMES[name]
}

function isCalendar(range: Span | CalendarRange): range is CalendarRange {
  return CALENDAR.some((one) => one === range)
}

export interface RangeSearch {
  range?: Span | CalendarRange
  from?: string
  to?: string
}

export interface Range {
  from: string
  to: string
  interval: 'minute' | 'hour' | 'day' | 'week'
  /** The range by name if it ends now, or null if its end is past. */
  span: Span | CalendarRange | null
}

export function parseRange(search: RawSearch): RangeSearch {
  const from = instant(search['from'])
  const to = instant(search['to'])
  if (from && to && from < to) return { from, to }
  const range = oneOf(search['range'], [...SPANS, ...CALENDAR])
  return range ? { range } : {}
}

/**
 * Resolves search parameters to instants. The end of a span is rounded up to the next step after `now`, so that queries
 * within one step have the same cache key.
 */
export function resolveRange(search: RangeSearch, now: number, zone: Zone = 'utc'): Range {
  if (search.from && search.to) {
    const length = Date.parse(search.to) - Date.parse(search.from)
    return { from: search.from, to: search.to, interval: intervalFor(length), span: null }
  }
  const span = search.range ?? DEFAULT_SPAN
  if (isCalendar(span)) return calendarRange(span, now, zone)
  const step = SPAN_MS[span] <= SPAN_MS['6h'] ? 60_000 : 300_000
  const end = Math.ceil((now + 1) / step) * step
  return {
    from: new Date(end - SPAN_MS[span]).toISOString(),
    to: new Date(end).toISOString(),
    interval: intervalFor(SPAN_MS[span]),
    span,
  }
}

function calendarRange(name: CalendarRange, now: number, zone: Zone): Range {
  const date = new Date(now)
  const [year, month, day] = zone === 'utc' ? [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()] : [date.getFullYear(), date.getMonth(), date.getDate()]
  const midnight = (m: number, d: number) => (zone === 'utc' ? Date.UTC(year, m, d) : new Date(year, m, d).getTime())
  const starts: Record<CalendarRange, number> = { today: midnight(month, day), yesterday: midnight(month, day - 1), 'this-month': midnight(month, 1), 'last-month': midnight(month - 1, 1) }
  const step = 300_000
  const next = Math.ceil((now + 1) / step) * step
  const ends: Record<CalendarRange, number> = { today: next, yesterday: midnight(month, day), 'this-month': next, 'last-month': midnight(month, 1) }
  const [from, to] = [starts[name], ends[name]]
  return { from: new Date(from).toISOString(), to: new Date(to).toISOString(), interval: intervalFor(to - from), span: to === next ? name : null }
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
