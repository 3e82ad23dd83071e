import { useEffect, useState } from 'react'
import type { LiveState } from '@/lib/live'
import { Status, type Tone } from '@/ui'

/** Whether rows come by themselves. */
export function LiveBadge({ state, paused }: { state: LiveState; paused: boolean }) {
  const { tone, word } = paused ? { tone: 'muted' as Tone, word: 'Paused' } : wordOf(state)
  const steady = useSteady(word)
  return (
    <span role="status" className={steady === 'Live' ? undefined : 'text-muted'} title={state.kind === 'refused' ? state.error.message : undefined}>
      <Status tone={tone}>{steady}</Status>
    </span>
  )
}

function wordOf(state: LiveState): { tone: Tone; word: string } {
  switch (state.kind) {
    case 'open':
      return { tone: 'ok', word: 'Live' }
    case 'connecting':
      return { tone: 'muted', word: 'Connecting…' }
    case 'waiting':
      return { tone: 'warn', word: 'Reconnecting…' }
    case 'polling':
      return { tone: 'warn', word: 'Asking every few seconds' }
    case 'refused':
      return { tone: 'err', word: 'Not live' }
  }
}

/** What lasts for a blink is not worth a flicker. */
function useSteady(word: string): string {
  const [shown, setShown] = useState(word)
  useEffect(() => {
    const timer = setTimeout(() => setShown(word), word === 'Live' || word === 'Paused' ? 0 : 400)
    return () => clearTimeout(timer)
  }, [word])
  return shown
}
