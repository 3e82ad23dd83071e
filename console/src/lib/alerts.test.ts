import { expect, test } from 'vitest'
import { countedSince, alertState, conditionText, measureOf, measureText, parseThreshold, thresholdInput } from './alerts'

test('a condition reads as a sentence, in the unit of its measure', () => {
  expect(conditionText({ measure: 'error_rate', above: 0.2, window_minutes: 10 })).toBe('Error rate above 20% over 10 minutes')
  expect(conditionText({ measure: 'p95_ms', above: 2500, window_minutes: 60 })).toBe('Latency (p95) above 2.5 s over 1 hour')
  expect(conditionText({ measure: 'cost_usd', above: 5, window_minutes: 1440 })).toBe('Spend above $5.00 over 24 hours')
  expect(measureText('requests', null)).toBe('–')
})

test('error rates are typed in percent', () => {
  expect(parseThreshold('error_rate', '7')).toBe(0.07)
  expect(thresholdInput('error_rate', 0.07)).toBe('7')
  expect(parseThreshold('errors', '')).toBeNull()
  expect(parseThreshold('errors', '-1')).toBeNull()
})

test('an error rate without requests is unknown, not zero', () => {
  const rows = { requests: 0, errors: 0, p95_ms: null, cost_usd: 0 }
  expect(measureOf('error_rate', rows)).toBeNull()
  expect(measureOf('errors', rows)).toBe(0)
})

test('the state says what matters most', () => {
  const alert = { enabled: true, firing: true, muted_until: null, checked_at: '2026-11-17T12:00:00Z', error: null }
  const now = Date.parse('2026-11-17T12:01:00Z')
  expect(alertState(alert, now)).toEqual({ word: 'firing', tone: 'err' })
  expect(alertState({ ...alert, muted_until: '2026-11-17T13:00:00Z' }, now).word).toBe('firing, muted')
  expect(alertState({ ...alert, firing: false, muted_until: '2026-11-17T12:00:30Z' }, now).word).toBe('ok')
  expect(alertState({ ...alert, firing: false, error: 'no such app' }, now).word).toBe('check failed')
  expect(alertState({ ...alert, enabled: false }, now).word).toBe('off')
})

test('a partial reading says since when rows were counted', () => {
  expect(countedSince({ value: 1 })).toBeNull()
  expect(countedSince({ value: 1, partial: false, scanned_to: null })).toBeNull()
  expect(countedSince({ value: 1, partial: true, scanned_to: '2026-11-18T20:00:00Z' })).toBe('2026-11-18T20:00:00Z')
})
