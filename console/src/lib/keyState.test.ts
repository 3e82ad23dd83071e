import { expect, it } from 'vitest'
import { expiryOf, isUsable, keyState } from './keyState'

const now = Date.parse('2026-11-15T12:00:00Z')

it('returns the state of a key', () => {
  const state = (expires_at: string | null, revoked_at: string | null): string => keyState({ expires_at, revoked_at }, now)
  expect(state(null, null)).toBe('active')
  expect(state('2026-11-16T12:00:00Z', null)).toBe('expiring')
  expect(state('2026-12-16T12:00:00Z', null)).toBe('active')
  expect(state('2026-11-15T12:00:00Z', null)).toBe('expired')
  expect(state('2026-11-16T12:00:00Z', '2026-11-15T11:00:00Z')).toBe('revoked')
  expect(isUsable({ expires_at: null, revoked_at: null }, now)).toBe(true)
  expect(isUsable({ expires_at: '2026-11-15T11:00:00Z', revoked_at: null }, now)).toBe(false)
})

it('computes when a new key expires', () => {
  expect(expiryOf('', '2026-12-31', now)).toBeNull()
  expect(expiryOf('30', '', now)).toBe('2026-12-15T12:00:00.000Z')
  expect(expiryOf('date', '2026-12-31', now)).toBe(new Date('2026-12-31T23:59:59').toISOString())
  expect(expiryOf('date', '', now)).toBeNull()
})
