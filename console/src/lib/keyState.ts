/** Lifecycle state of an API key. */

export type KeyState = 'active' | 'rotating' | 'expired' | 'revoked'

interface Dates {
  expires_at: string | null
  revoked_at: string | null
}

export function keyState({ expires_at: expires, revoked_at: revoked }: Dates, now: number): KeyState {
  if (revoked !== null) return 'revoked'
  if (expires === null) return 'active'
  return Date.parse(expires) <= now ? 'expired' : 'rotating'
}

export function isUsable(key: Dates, now: number): boolean {
  const state = keyState(key, now)
  return state === 'active' || state === 'rotating'
}
