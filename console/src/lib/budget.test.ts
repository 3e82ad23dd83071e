import { expect, test } from 'vitest'
import { periodStart, projectSpend } from './budget'

test('a monthly period has the length of its month', () => {
  expect(new Date(periodStart({ period: 'monthly', resets_at: '2026-03-01T00:00:00Z' })).toISOString()).toBe('2026-02-01T00:00:00.000Z')
  expect(new Date(periodStart({ period: 'monthly', resets_at: '2027-01-01T00:00:00Z' })).toISOString()).toBe('2026-12-01T00:00:00.000Z')
})

test('ten dollars at half time project to twenty', () => {
  expect(projectSpend({ period: 'daily', resets_at: '2026-11-16T00:00:00Z', spent_usd: 10 }, Date.parse('2026-11-15T12:00:00Z'))).toBeCloseTo(20)
})

test('there is no projection at the start of a period', () => {
  expect(projectSpend({ period: 'weekly', resets_at: '2026-11-16T00:00:00Z', spent_usd: 10 }, Date.parse('2026-11-09T01:00:00Z'))).toBeNull()
})
