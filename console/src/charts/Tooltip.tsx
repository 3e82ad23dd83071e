import type { ReactNode } from 'react'

interface TooltipProps {
  title: string
  lines: { name: string; color: string | null; value: string }[]
  /** Position of the crosshair, and the width of the chart. */
  x: number
  width: number
}

/** Values of all series at one time. Hidden from screen readers, which read the value of the slider. */
export function Tooltip({ title, lines, x, width }: TooltipProps): ReactNode {
  const onLeft = x > width / 2
  return (
    <div aria-hidden className="pointer-events-none absolute top-0 z-20 max-w-[min(280px,70%)] rounded-sm border border-line bg-raised px-2 py-1.5 text-xs shadow-float" style={onLeft ? { right: width - x + 12 } : { left: x + 12 }}>
      <div className="mb-0.5 font-medium whitespace-nowrap">{title}</div>
      {lines.map((line) => (
        <div key={line.name} className={line.color === null ? 'mt-0.5 flex gap-3 border-t border-line pt-0.5 font-medium' : 'flex items-center gap-3'}>
          <span className="flex min-w-0 flex-1 items-center gap-1.5">
            {line.color !== null && <span className="size-2 shrink-0 rounded-[2px]" style={{ background: line.color }} />}
            <span className="name truncate">{line.name}</span>
          </span>
          <span className="tabular-nums">{line.value}</span>
        </div>
      ))}
    </div>
  )
}
