/**
 * Who is signed in. The token lives in localStorage, so that a new tab does not ask again, and every tab hears of a
 * change at once. Nothing else that is secret is ever stored.
 */
import { useSyncExternalStore } from 'react'
import { isRecord } from './error'

export interface Session {
  token: string
  /** Milliseconds since the epoch. */
  expiresAt: number
  userId: string
  email: string
  orgId: string
  /** As the token says it; what holds is what `/auth/entitlements` says. */
  role: string
}

const KEY = 'console.session'
/** Drafts and the like are kept under names that begin so, see `lib/remembered`. */
export const KEPT = 'console.kept.'
const listeners = new Set<() => void>()
const endListeners = new Set<() => void>()
let current: Session | null = load()

// Another tab signed in or out. Only this event promises that the store already shows here what that tab wrote: a
// message through a BroadcastChannel may overtake the change that it tells of, and the old session would be kept.
globalThis.addEventListener?.('storage', (event) => {
  if (event.key === KEY || event.key === null) adopt(load())
})

export function getSession(): Session | null {
  return current
}

export function useSession(): Session | null {
  return useSyncExternalStore(subscribe, getSession)
}

export function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/** Keeps the session that a token stands for. The email is not in the token. */
export function startSession(token: string, email: string): void {
  const claims = claimsOf(token)
  if (!claims) throw new Error('the server sent a token that cannot be read')
  const session = { ...claims, token, email }
  localStorage.setItem(KEY, JSON.stringify(session))
  adopt(session)
}

export function endSession(): void {
  localStorage.removeItem(KEY)
  for (const name of Object.keys(localStorage)) {
    if (name.startsWith(KEPT)) localStorage.removeItem(name)
  }
  adopt(null)
}

/** Called when the server no longer takes the token, or soon will not. */
export function onSessionRefused(listener: () => void): () => void {
  endListeners.add(listener)
  return () => endListeners.delete(listener)
}

export function sessionRefused(): void {
  for (const listener of endListeners) listener()
}

function adopt(session: Session | null): void {
  current = session
  for (const listener of listeners) listener()
}

function load(): Session | null {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(KEY) ?? 'null')
    if (!isRecord(value) || typeof value['token'] !== 'string' || typeof value['email'] !== 'string') return null
    const claims = claimsOf(value['token'])
    return claims && { ...claims, token: value['token'], email: value['email'] }
  } catch {
    return null
  }
}

function claimsOf(token: string): Omit<Session, 'token' | 'email'> | null {
  const middle = token.split('.')[1]
  if (!middle) return null
  const claims: unknown = JSON.parse(atob(middle.replace(/-/g, '+').replace(/_/g, '/')))
  if (!isRecord(claims)) return null
  const { sub, org, role, exp } = claims
  if (typeof sub !== 'string' || typeof org !== 'string' || typeof exp !== 'number') return null
  return { userId: sub, orgId: org, role: typeof role === 'string' ? role : 'viewer', expiresAt: exp * 1000 }
}
