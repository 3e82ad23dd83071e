import { useEffect, useState } from 'react'

/** The current time, updated every `intervalMs` milliseconds while the tab is visible. */
export function useNow(intervalMs: number): number {
  const [now, setNow] = useState(Date.now)
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setNow(Date.now())
    }, intervalMs)
    return () => clearInterval(timer)
  }, [intervalMs])
  return now
}
