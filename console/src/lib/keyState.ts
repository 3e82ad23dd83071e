/** Lifecycle state of an API key. A key that ends within `SOON_MS` is expiring. */

export type KeyState = 'active' | 'expiring' | 'expired' | 'revoked'

const SOON_MS = 7 * 86_400_000

interface Dates {
  expires_at: string | null
  revoked_at: string | null
}

export function keyState({ expires_at: expires, revoked_at: revoked }: Dates, now: number): KeyState {
  if (revoked !== null) return 'revoked'
  if (expires === null) return 'active'
  const left = Date.parse(expires) - now
  return left <= 0 ? 'expired' : left < SOON_MS ? 'expiring' : 'active'
}

/** Days that a new key can be valid for, as offered in the form. */
export const LIFETIMES = [7, 30, 90, 365] as const

/** The end of a key that is made now: after some days, at the end of a date (`2026-12-31`), or never (null). */
export function expiryOf(choice: string, date: string, now: number): string | null {
  if (choice === '') return null
  if (choice !== 'date') return new Date(now + Number(choice) * 86_400_000).toISOString()
  const end = new Date(`${date}T23:59:59`)
  return Number.isNaN(end.getTime()) ? null : end.toISOString()
}

export function isUsable(key: Dates, now: number): boolean {
  const state = keyState(key, now)
  return state === 'active' || state === 'expiring'
}
