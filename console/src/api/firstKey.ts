/** The raw key of the first run. It lives in memory only and is gone after a reload, as it should be. */
import { useSyncExternalStore } from 'react'

let key: string | null = null
const listeners = new Set<() => void>()

export function keepFirstKey(raw: string | null): void {
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
