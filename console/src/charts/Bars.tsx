/** Shares of a whole as bars with their names and numbers: rankings, and axes of an evaluation. */
import type { ReactNode } from 'react'

export interface Bar {
  name: string
  /** Between 0 and 1. */
  share: number
  value: string
  color?: string
  /** Where a limit lies, between 0 and 1. */
  mark?: number
}

export function Bars({ bars, label }: { bars: Bar[]; label: string }): ReactNode {
  return (
    <ul aria-label={label} className="space-y-2">
      {bars.map((bar) => (
        <li key={bar.name}>
          <div className="flex items-baseline gap-2 text-xs">
            <span className="min-w-0 flex-1 truncate">{bar.name}</span>
            <span className="text-muted tabular-nums">{bar.value}</span>
          </div>
          <Meter share={bar.share} color={bar.color} mark={bar.mark} />
        </li>
      ))}
    </ul>
  )
}

/** The bar alone; its number must stand beside it. */
export function Meter({ share, color = 'var(--series-1)', mark }: { share: number; color?: string | undefined; mark?: number | undefined }): ReactNode {
  const clamp = (value: number): string => `${Math.min(100, Math.max(0, value * 100))}%`
  return (
    <div className="relative mt-1 h-1.5 rounded-full bg-line" aria-hidden>
      <div className="h-full rounded-full" style={{ width: clamp(share), background: color }} />
      {mark !== undefined && <div className="absolute -inset-y-0.5 w-0.5 bg-fg" style={{ left: clamp(mark) }} />}
    </div>
  )
}
