import { useEffect, useState } from 'react'

const PAUSE_MS = 400

/** The value after it has not changed for a moment: typed texts are sent once, not at every key. */
export function useSettled(value: string): string {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [value])
  return settled
}
