/** Alerts in words: what they measure, what they found, and their state. */
import { money, duration, integer, NO_VALUE, percent, plural, roundDuration } from './format'

export const MEASURES = [
  { value: 'error_rate', label: 'Error rate', unit: '%' },
  { value: 'errors', label: 'Errors', unit: 'requests' },
  { value: 'requests', label: 'Requests', unit: 'requests' },
  { value: 'p95_ms', label: 'Latency (p95)', unit: 'ms' },
  { value: 'cost_usd', label: 'Spend', unit: 'USD' },
] as const

export type Measure = (typeof MEASURES)[number]['value']

/** What is measured of the rows of a window. */
export interface Measured {
  requests: number
  errors: number
  p95_ms: number | null
  cost_usd: number | null
}

interface AlertState {
  enabled: boolean
  firing: boolean
  muted_until: string | null
  checked_at: string | null
  error: string | null
}

export function measureName(measure: Measure): string {
  return MEASURES.find((one) => one.value === measure)?.label ?? measure
}

/** A value in the unit of its measure: `12%`, `1.24 s`, `$5.00`, `1,234`. */
export function measureText(measure: Measure, value: number | null | undefined): string {
  if (value == null) return NO_VALUE
  if (measure === 'error_rate') return percent(value)
  if (measure === 'p95_ms') return duration(value)
  return measure === 'cost_usd' ? money(value) : integer(value)
}

/** The threshold as it is typed: error rates in percent. */
export function thresholdInput(measure: Measure, above: number): string {
  return String(measure === 'error_rate' ? Number((above * 100).toFixed(6)) : above)
}

/** Null if the text is not a threshold. */
export function parseThreshold(measure: Measure, input: string): number | null {
  const value = input.trim() === '' ? Number.NaN : Number(input)
  if (!Number.isFinite(value) || value < 0) return null
  return measure === 'error_rate' ? Number((value / 100).toFixed(8)) : value
}

export function windowText(minutes: number): string {
  if (minutes % 60 !== 0) return plural(minutes, 'minute')
  return minutes === 1440 ? '24 hours' : plural(minutes / 60, 'hour')
}

/** `Error rate above 20% over 10 minutes`. */
export function conditionText(alert: { measure: Measure; above: number; window_minutes: number }): string {
  return `${measureName(alert.measure)} above ${alert.measure === 'p95_ms' ? roundDuration(alert.above) : measureText(alert.measure, alert.above)} over ${windowText(alert.window_minutes)}`
}

export function measureOf(measure: Measure, rows: Measured): number | null {
  if (measure === 'error_rate') return rows.requests === 0 ? null : rows.errors / rows.requests
  return rows[measure]
}

/** The state in one word, with the tone of its badge. A muted alert goes on being checked. */
export function alertState(alert: AlertState, now: number): { word: string; tone: 'ok' | 'warn' | 'err' | 'muted' } {
  if (!alert.enabled) return { word: 'off', tone: 'muted' }
  const muted = isMuted(alert, now) ? ', muted' : ''
  if (alert.firing) return { word: `firing${muted}`, tone: muted ? 'warn' : 'err' }
  if (alert.error !== null) return { word: `check failed${muted}`, tone: 'warn' }
  if (alert.checked_at === null) return { word: `not checked yet${muted}`, tone: 'muted' }
  return { word: `ok${muted}`, tone: muted ? 'muted' : 'ok' }
}

/** Since when rows were counted, if there were too many to read the whole window; null for a full reading. */
export function countedSince(reading: { value: number | null; partial?: boolean; scanned_to?: string | null }): string | null {
  return reading.partial === true ? (reading.scanned_to ?? null) : null
}

export function isMuted(alert: { muted_until: string | null }, now: number): boolean {
  return alert.muted_until !== null && Date.parse(alert.muted_until) > now
}
