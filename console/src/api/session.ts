/**
 * The session. The token is stored in localStorage so that all tabs share it, and changes propagate to other tabs at
 * once. No other secret is stored.
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
  /** Role claim of the token. `/auth/entitlements` is authoritative. */
  role: string
}

const SESSION_KEY = 'console.session'
/** Prefix of the localStorage keys of drafts, see `lib/usePersistentState`. Sign-out removes them. */
export const DRAFT_KEY_PREFIX = 'console.kept.'
const listeners = new Set<() => void>()
const expiryListeners = new Set<() => void>()
let current: Session | null = load()

// Another tab signed in or out. The storage event guarantees that localStorage already shows the other tab's write;
// a BroadcastChannel message may arrive before the write is visible, and this tab would keep the old session.
globalThis.addEventListener?.('storage', (event) => {
  if (event.key === SESSION_KEY || event.key === null) setCurrent(load())
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

/** Stores the session of a token. The token does not contain the email. */
export function startSession(token: string, email: string): void {
  const claims = decodeClaims(token)
  if (!claims) throw new Error('the server sent a token that cannot be read')
  const session = { ...claims, token, email }
  localStorage.setItem(SESSION_KEY, JSON.stringify(session))
  setCurrent(session)
}

export function endSession(): void {
  localStorage.removeItem(SESSION_KEY)
  for (const name of Object.keys(localStorage)) {
    if (name.startsWith(DRAFT_KEY_PREFIX)) localStorage.removeItem(name)
  }
  setCurrent(null)
}

/** Registers a listener for tokens that the server rejects. */
export function onSessionExpired(listener: () => void): () => void {
  expiryListeners.add(listener)
  return () => expiryListeners.delete(listener)
}

export function notifySessionExpired(): void {
  for (const listener of expiryListeners) listener()
}

function setCurrent(session: Session | null): void {
  current = session
  for (const listener of listeners) listener()
}

function load(): Session | null {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(SESSION_KEY) ?? 'null')
    if (!isRecord(value) || typeof value['token'] !== 'string' || typeof value['email'] !== 'string') return null
    const claims = decodeClaims(value['token'])
    return claims && { ...claims, token: value['token'], email: value['email'] }
  } catch {
    return null
  }
}

function decodeClaims(token: string): Omit<Session, 'token' | 'email'> | null {
  const payload = token.split('.')[1]
  if (!payload) return null
  const claims: unknown = JSON.parse(atob(payload.replace(/-/g, '+').replace(/_/g, '/')))
  if (!isRecord(claims)) return null
  const { sub, org, role, exp } = claims
  if (typeof sub !== 'string' || typeof org !== 'string' || typeof exp !== 'number') return null
  return { userId: sub, orgId: org, role: typeof role === 'string' ? role : 'viewer', expiresAt: exp * 1000 }
}
