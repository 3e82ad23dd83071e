import { expect, test } from 'vitest'
import { periodStart, projected } from './budget'

test('a month is as long as it is', () => {
  expect(new Date(periodStart({ period: 'monthly', resets_at: '2026-03-01T00:00:00Z' })).toISOString()).toBe('2026-02-01T00:00:00.000Z')
  expect(new Date(periodStart({ period: 'monthly', resets_at: '2027-01-01T00:00:00Z' })).toISOString()).toBe('2026-12-01T00:00:00.000Z')
})

test('half of the time with ten dollars makes twenty', () => {
  expect(projected({ period: 'daily', resets_at: '2026-11-16T00:00:00Z', spent_usd: 10 }, Date.parse('2026-11-15T12:00:00Z'))).toBeCloseTo(20)
})

test('in the first minutes nothing is foretold', () => {
  expect(projected({ period: 'weekly', resets_at: '2026-11-16T00:00:00Z', spent_usd: 10 }, Date.parse('2026-11-09T01:00:00Z'))).toBeNull()
})
