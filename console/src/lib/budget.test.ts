import { expect, it } from 'vitest'
import { periodStart, projected } from './budget'

it('knows when a period began', () => {
  const start = (period: 'daily' | 'weekly' | 'monthly', resets_at: string): string => new Date(periodStart({ period, resets_at })).toISOString()
  expect(start('daily', '2026-11-16T00:00:00Z')).toBe('2026-11-15T00:00:00.000Z')
  expect(start('weekly', '2026-11-16T00:00:00Z')).toBe('2026-11-09T00:00:00.000Z')
  expect(start('monthly', '2026-03-01T00:00:00Z')).toBe('2026-02-01T00:00:00.000Z')
  expect(start('monthly', '2027-01-01T00:00:00Z')).toBe('2026-12-01T00:00:00.000Z')
})

it('draws the line on to the end of the period, unless it is too short', () => {
  const spending = { period: 'daily', spent_usd: 3, resets_at: '2026-11-16T00:00:00Z' } as const
  expect(projected(spending, Date.parse('2026-11-15T06:00:00Z'))).toBeCloseTo(12)
  expect(projected(spending, Date.parse('2026-11-15T00:05:00Z'))).toBeNull()
  expect(projected(spending, Date.parse('2026-11-17T00:00:00Z'))).toBeNull()
})
