/** A small line without axes. It only shows a direction; whoever needs the numbers finds them beside it. */
import type { ReactNode } from 'react'
import { linePath } from './scale'

interface Props {
  values: (number | null)[]
  color?: string
  width?: number
  height?: number
}

export function Spark({ values, color = 'var(--series-1)', width = 96, height = 24 }: Props): ReactNode {
  const top = Math.max(1e-9, ...values.map((value) => value ?? 0))
  const x = (index: number): number => 1 + (index * (width - 2)) / Math.max(1, values.length - 1)
  const y = (value: number): number => height - 1.5 - (value / top) * (height - 3)
  return (
    <svg width={width} height={height} aria-hidden className="block shrink-0">
      <path d={linePath(values, x, y)} fill="none" stroke={color} strokeWidth={1.5} strokeLinejoin="round" strokeLinecap="round" />
    </svg>
  )
}
