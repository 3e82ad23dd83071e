import { useEffect, useState } from 'react'
import type { LiveState } from '@/lib/liveStream'
import { Status, type Tone } from '@/ui'

/** Connection status of the live log stream. */
export function LiveBadge({ state, paused }: { state: LiveState; paused: boolean }) {
  const { tone, label } = paused ? { tone: 'muted' as Tone, label: 'Paused' } : describeState(state)
  const debounced = useDebouncedLabel(label)
  return (
    <span role="status" className={debounced === 'Live' ? undefined : 'text-muted'} title={state.kind === 'refused' ? state.error.message : undefined}>
      <Status tone={tone}>{debounced}</Status>
    </span>
  )
}

function describeState(state: LiveState): { tone: Tone; label: string } {
  switch (state.kind) {
    case 'open':
      return { tone: 'ok', label: 'Live' }
    case 'connecting':
      return { tone: 'muted', label: 'Connecting…' }
    case 'waiting':
      return { tone: 'warn', label: 'Reconnecting…' }
    case 'polling':
      return { tone: 'warn', label: 'Polling' }
    case 'refused':
      return { tone: 'err', label: 'Not live' }
  }
}

/** Debounces transient states to avoid flicker. */
function useDebouncedLabel(label: string): string {
  const [debounced, setDebounced] = useState(label)
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(label), label === 'Live' || label === 'Paused' ? 0 : 400)
    return () => clearTimeout(timer)
  }, [label])
  return debounced
}
