/** State persisted in localStorage per user and organization, e.g. drafts. Sign-out removes it. */
import { useCallback, useState } from 'react'
import { getSession, DRAFT_KEY_PREFIX } from '@/api/session'

export function usePersistentState<T>(name: string, initial: T): [T, (next: T) => void] {
  const session = getSession()
  const key = `${DRAFT_KEY_PREFIX}${session?.userId}.${session?.orgId}.${name}`
  const [state, setState] = useState(() => ({ key, value: load(key, initial) }))
  const current = state.key === key ? state : { key, value: load(key, initial) }
  const set = useCallback(
    (value: T) => {
      setState({ key, value })
      try {
        if (value === null) localStorage.removeItem(key)
        else localStorage.setItem(key, JSON.stringify(value))
      } catch {
        // localStorage is full; the value stays in memory while the page is open.
      }
    },
    [key],
  )
  return [current.value, set]
}

function load<T>(key: string, initial: T): T {
  try {
    const stored = localStorage.getItem(key)
    return stored === null ? initial : (JSON.parse(stored) as T)
  } catch {
    return initial
  }
}
