import { expect, test } from 'vitest'
import { intervalFor, previousRange, parseRange, resolveRange } from './range'

const NOW = Date.parse('2026-11-15T10:07:13Z')

test('a span ends at the next full step, so that its query key is stable', () => {
  const range = resolveRange({ range: '24h' }, NOW)
  expect(range).toEqual({ from: '2026-11-14T10:10:00.000Z', to: '2026-11-15T10:10:00.000Z', interval: 'hour', span: '24h' })
  expect(resolveRange({ range: '24h' }, NOW + 60_000)).toEqual(range)
})

test('days and months of the calendar end now or where the next one begins', () => {
  expect(resolveRange({ range: 'today' }, NOW)).toEqual({ from: '2026-11-15T00:00:00.000Z', to: '2026-11-15T10:10:00.000Z', interval: 'hour', span: 'today' })
  expect(resolveRange({ range: 'yesterday' }, NOW)).toEqual({ from: '2026-11-14T00:00:00.000Z', to: '2026-11-15T00:00:00.000Z', interval: 'hour', span: null })
  expect(resolveRange({ range: 'this-month' }, NOW)).toMatchObject({ from: '2026-11-01T00:00:00.000Z', span: 'this-month' })
  expect(resolveRange({ range: 'last-month' }, Date.parse('2026-01-31T05:00:00Z'))).toMatchObject({ from: '2025-12-01T00:00:00.000Z', to: '2026-01-01T00:00:00.000Z', span: null })
  expect(parseRange({ range: 'this-month' })).toEqual({ range: 'this-month' })
})

test('two instants win over a span, and invalid values are dropped', () => {
  expect(parseRange({ from: '2026-11-01', to: '2026-11-02T00:00:00Z', range: '7d' })).toEqual({ from: '2026-11-01T00:00:00.000Z', to: '2026-11-02T00:00:00.000Z' })
  expect(parseRange({ from: '2026-11-02', to: '2026-11-01', range: '7d' })).toEqual({ range: '7d' })
  expect(parseRange({ range: 'ever', from: 'x' })).toEqual({})
})

test('the period before is as long and ends where this one begins', () => {
  expect(previousRange(resolveRange({ range: '1h' }, NOW))).toEqual({ from: '2026-11-15T08:08:00.000Z', to: '2026-11-15T09:08:00.000Z' })
})

test.each([
  [3.6e6, 'minute'],
  [8.64e7, 'hour'],
  [6.048e8, 'day'],
  [2.592e9 * 12, 'week'],
])('%d ms is drawn by %s', (length, interval) => {
  expect(intervalFor(length)).toBe(interval)
})
