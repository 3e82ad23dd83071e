/** Bar of a fraction. The caller displays the number next to it. */
import type { ReactNode } from 'react'

interface Props {
  /** Between 0 and 1. */
  share: number
  color?: string | undefined
  /** Position of a limit mark, between 0 and 1. */
  mark?: number | undefined
}

export function Meter({ share, color = 'var(--series-1)', mark }: Props): ReactNode {
  const clamp = (value: number): string => `${Math.min(100, Math.max(0, value * 100))}%`
  return (
    <div className="relative mt-1 h-1.5 rounded-full bg-line" aria-hidden>
      <div className="h-full rounded-full" style={{ width: clamp(share), background: color }} />
      {mark !== undefined && <div className="absolute -inset-y-0.5 w-0.5 bg-fg" style={{ left: clamp(mark) }} />}
    </div>
  )
}
