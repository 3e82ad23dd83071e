/** Formats numbers, money and time for display. Unknown values are shown as a dash, never as zero. */

export type Zone = 'local' | 'utc'

export const NO_VALUE = '–'

const INTEGER_FORMAT = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 })
const UNITS: [number, string][] = [
  [1e12, 'T'],
  [1e9, 'B'],
  [1e6, 'M'],
  [1e3, 'k'],
]

/** `842`, `1,234`, `12.3 k`, `34 M`. */
export function compact(value: number | null | undefined): string {
  if (value == null) return NO_VALUE
  if (Number.isInteger(value) && Math.abs(value) < 10_000) return INTEGER_FORMAT.format(value)
  // Values that would round up to 1000 use the next unit.
  const unit = UNITS.find(([size]) => Math.abs(value) >= size * 0.99995)
  if (!unit) return Number.isInteger(value) ? String(value) : value.toFixed(1)
  const scaled = value / unit[0]
  return `${scaled.toFixed(Math.abs(scaled) < 99.95 ? 1 : 0).replace(/\.0$/, '')} ${unit[1]}`
}

/** `12,345`. */
export function integer(value: number | null | undefined): string {
  return value == null ? NO_VALUE : INTEGER_FORMAT.format(value)
}

/** `$1,234.50`, `$0.60`, `$0.042`, `$0.0000035`: at least cents, and at least two significant digits. */
export function money(usd: number | null | undefined): string {
  if (usd == null) return NO_VALUE
  const size = Math.abs(usd)
  if (size === 0) return '$0'
  const sign = usd < 0 ? '−' : ''
  if (size < 1e-8) return `${sign}<$0.00000001`
  const digits = size >= 1 ? 2 : size >= 0.1 ? 3 : Math.min(9, 1 - Math.floor(Math.log10(size)))
  const fixed = size.toLocaleString('en-US', { minimumFractionDigits: 2, maximumFractionDigits: digits })
  return `${sign}$${fixed}`
}

/** Formats the amounts of one column with the same decimals: two if the largest is a dollar or more or all are zero, else four. */
export function moneyColumn(values: readonly (number | null | undefined)[]): (usd: number | null | undefined) => string {
  const largest = Math.max(0, ...values.map((value) => Math.abs(value ?? 0)))
  const digits = largest >= 1 || largest === 0 ? 2 : 4
  const smallest = digits === 2 ? 0.01 : 0.0001
  return (usd) => {
    if (usd == null) return NO_VALUE
    if (usd > 0 && usd < smallest / 2) return `<$${smallest}`
    return `${usd < 0 ? '−' : ''}$${Math.abs(usd).toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })}`
  }
}

/** Formats the amounts of an axis with as many decimals as the finest of them needs. */
export function moneyTicks(ticks: readonly number[]): (usd: number) => string {
  const isWhole = (value: number) => Math.abs(value - Math.round(value)) < 1e-6
  let digits = 0
  while (digits < 9 && !ticks.every((tick) => isWhole(tick * 10 ** digits))) digits += 1
  // Cents have two decimals.
  if (digits === 1) digits = 2
  return (usd) => `$${usd.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })}`
}

/** `$0.0042`, `<$0.0001`, `$1,234.5000`: four decimals, so that the amounts of a column line up. */
export function cost(usd: number | null | undefined): string {
  if (usd == null) return NO_VALUE
  if (usd > 0 && usd < 0.00005) return '<$0.0001'
  return `${usd < 0 ? '−' : ''}$${Math.abs(usd).toLocaleString('en-US', { minimumFractionDigits: 4, maximumFractionDigits: 4 })}`
}

/** `0.4 ms`, `842 ms`, `1.24 s`, `3 min 4 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(ms: number | null | undefined): string {
  if (ms == null) return NO_VALUE
  if (ms < 10 && !Number.isInteger(ms)) return `${ms.toFixed(1)} ms`
  if (ms < 999.5) return `${Math.round(ms)} ms`
  if (ms < 9_995) return `${(ms / 1000).toFixed(2)} s`
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 3_600) return twoUnits(seconds, 60, 'min', 1, 's')
  if (seconds < 86_400) return twoUnits(seconds, 3_600, 'h', 60, 'min')
  return twoUnits(seconds, 86_400, 'd', 3_600, 'h')
}

/** `4 s`, `2.5 s`: a duration that someone chose, or of an axis, without the zeros of a measured one. */
export function roundDuration(ms: number): string {
  return duration(ms).replace(/\.(\d*[1-9])?0+ s$/, (_, digits: string | undefined) => (digits === undefined ? ' s' : `.${digits} s`))
}

function twoUnits(seconds: number, big: number, bigName: string, small: number, smallName: string): string {
  const rest = Math.floor((seconds % big) / small)
  return `${Math.floor(seconds / big)} ${bigName}${rest > 0 ? ` ${rest} ${smallName}` : ''}`
}

/** `12.3%` for a fraction between 0 and 1. */
export function percent(fraction: number | null | undefined): string {
  if (fraction == null || Number.isNaN(fraction)) return NO_VALUE
  const value = fraction * 100
  if (value > 0 && value < 0.1) return '<0.1%'
  return `${value.toFixed(1).replace(/\.0$/, '')}%`
}

/** `18 B`, `1.5 KiB`. */
export function bytes(size: number | null | undefined): string {
  if (size == null) return NO_VALUE
  if (size < 1024) return `${size} B`
  const power = Math.min(4, Math.floor(Math.log2(size) / 10))
  return `${(size / 1024 ** power).toFixed(1).replace(/\.0$/, '')} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`
}

/** `1 key`, `3 keys`, `2 entries`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${integer(count)} ${count === 1 ? one : many}`
}

const STYLES = {
  /** 14:03:21 */
  time: { hour: '2-digit', minute: '2-digit', second: '2-digit' },
  /** 14:03 */
  minute: { hour: '2-digit', minute: '2-digit' },
  /** 15 Nov */
  day: { day: 'numeric', month: 'short' },
  /** 15 Nov 2026 */
  date: { day: 'numeric', month: 'short', year: 'numeric' },
  /** 15 Nov 2026, 14:03 */
  short: { day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit' },
  /** 15 Nov 2026, 14:03:21.042 GMT+1, for tooltips */
  full: {
    day: 'numeric',
    month: 'short',
    year: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    fractionalSecondDigits: 3,
    timeZoneName: 'short',
  },
} as const satisfies Record<string, Intl.DateTimeFormatOptions>

export type TimeStyle = keyof typeof STYLES

const formatters = new Map<string, Intl.DateTimeFormat>()

/** Formats a timestamp in the user's time zone. */
export function time(at: string | number | Date | null | undefined, zone: Zone, style: TimeStyle = 'short'): string {
  if (at == null) return NO_VALUE
  const date = new Date(at)
  if (Number.isNaN(date.getTime())) return NO_VALUE
  const name = `${zone} ${style}`
  let formatter = formatters.get(name)
  if (!formatter) {
    const options = { ...STYLES[style], hourCycle: 'h23', ...(zone === 'utc' ? { timeZone: 'UTC' } : {}) } as const
    formatter = new Intl.DateTimeFormat('en-GB', options)
    formatters.set(name, formatter)
  }
  return formatter.format(date)
}

/** `UTC`, or the name of the browser's time zone. */
export function zoneName(zone: Zone): string {
  return zone === 'utc' ? 'UTC' : Intl.DateTimeFormat().resolvedOptions().timeZone
}

/** Note for pages with charts: the time zone of labels and of day boundaries. */
export function zoneNote(zone: Zone): string {
  const name = zoneName(zone)
  return name === 'UTC' ? 'All times are UTC' : `Times are shown in ${name}; days begin at midnight UTC`
}

/** `just now`, `5 min ago`, `in 3 h`. */
export function ago(at: string | number | Date | null | undefined, now: number): string {
  if (at == null) return NO_VALUE
  const distance = now - new Date(at).getTime()
  if (Math.abs(distance) < 10_000) return 'just now'
  const text = approximate(Math.abs(distance) / 1000)
  return distance > 0 ? `${text} ago` : `in ${text}`
}

/** `5 min`: how long ago it was. */
export function age(at: string, now: number): string {
  return approximate(Math.max(0, now - Date.parse(at)) / 1000)
}

function approximate(seconds: number): string {
  if (seconds < 59.5) return `${Math.round(seconds)} s`
  if (seconds < 3_570) return `${Math.round(seconds / 60)} min`
  if (seconds < 84_600) return `${Math.round(seconds / 3_600)} h`
  return `${Math.round(seconds / 86_400)} d`
}
