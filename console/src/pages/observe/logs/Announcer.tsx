import { useEffect, useEffectEvent, useState } from 'react'
import { plural } from '@/lib/format'

const ANNOUNCE_INTERVAL_MS = 5000

/** Announces the number of new requests to screen readers, at most once per interval. */
export function Announcer({ total }: { total: number }) {
  const [text, setText] = useState('')
  const [announced, setAnnounced] = useState(0)
  const announce = useEffectEvent(() => {
    if (total > announced) setText(plural(total - announced, 'new request'))
    setAnnounced(total)
  })
  useEffect(() => {
    const timer = setInterval(() => announce(), ANNOUNCE_INTERVAL_MS)
    return () => clearInterval(timer)
  }, [])
  return (
    <p className="sr-only" role="status">
      {text}
    </p>
  )
}
