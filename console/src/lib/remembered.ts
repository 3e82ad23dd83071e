/** What a person typed and would be sorry to lose, kept in this browser for this person and organization until they sign out. */
import { useCallback, useState } from 'react'
import { getSession, KEPT } from '@/api/session'

export function useRemembered<T>(name: string, initial: T): [T, (next: T) => void] {
  const session = getSession()
  const key = `${KEPT}${session?.userId}.${session?.orgId}.${name}`
  const [state, setState] = useState(() => ({ key, value: load(key, initial) }))
  const current = state.key === key ? state : { key, value: load(key, initial) }
  const set = useCallback(
    (value: T) => {
      setState({ key, value })
      try {
        if (value === null) localStorage.removeItem(key)
        else localStorage.setItem(key, JSON.stringify(value))
      } catch {
        // The browser's storage is full: it is still kept as long as the page is open.
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
