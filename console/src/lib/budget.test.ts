import { expect, test } from 'vitest'
import { EVERY_USER, budgetsOfUser, periodStart, projectSpend } from './budget'

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

test('a default of all users has no projection', () => {
  expect(projectSpend({ period: 'daily', resets_at: '2026-11-16T00:00:00Z', spent_usd: null }, Date.parse('2026-11-15T12:00:00Z'))).toBeNull()
})

test('a budget of a user replaces the defaults', () => {
  const budget = (scope: 'org' | 'user', scope_id: string) => ({ scope, scope_id })
  const [org, each, ada] = [budget('org', 'ada'), budget('user', EVERY_USER), budget('user', 'ada')]
  expect(budgetsOfUser([org, each, ada], 'ada')).toEqual([ada])
  expect(budgetsOfUser([org, each, ada], 'bob')).toEqual([each])
  expect(budgetsOfUser([org, each, ada], EVERY_USER)).toEqual([each])
  expect(budgetsOfUser([org, ada], 'bob')).toEqual([])
})
