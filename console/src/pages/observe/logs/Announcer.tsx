import { useEffect, useEffectEvent, useState } from 'react'
import { plural } from '@/lib/format'

/** Often enough to know, seldom enough to hear something else. */
const EVERY_MS = 5000

/** Tells screen readers how many requests came, never each of them. */
export function Announcer({ arrived }: { arrived: number }) {
  const [words, setWords] = useState('')
  const [told, setTold] = useState(0)
  const tell = useEffectEvent(() => {
    if (arrived > told) setWords(plural(arrived - told, 'new request'))
    setTold(arrived)
  })
  useEffect(() => {
    const timer = setInterval(() => tell(), EVERY_MS)
    return () => clearInterval(timer)
  }, [])
  return (
    <p className="sr-only" role="status">
      {words}
    </p>
  )
}
