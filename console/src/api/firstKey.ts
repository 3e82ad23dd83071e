/** The raw API key created at sign-up. It is kept in memory only, so a reload discards it. */
import { useSyncExternalStore } from 'react'

let key: string | null = null
const listeners = new Set<() => void>()

export function setFirstKey(raw: string | null): void {
  key = raw
  for (const listener of listeners) listener()
}

export function useFirstKey(): string | null {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => key,
  )
}
