/** Parts of a time series chart: axes, bars and lines. */
import type { ReactNode } from 'react'
import { time, type Zone } from '../lib/format'
import { linePath, tickTimeStyle, timeTicks } from './scale'
import type { TimeSeries } from './TimeChart'

const GAP = 2
const LABEL_WIDTH = 90
/** Half of the widest label. */
const HALF_LABEL = 24

type Scale = (value: number) => number

export function Axis({ ticks, y, left, width, format }: { ticks: number[]; y: Scale; left: number; width: number; format: (value: number) => string }): ReactNode {
  return ticks.map((tick) => (
    <g key={tick}>
      <line x1={left} x2={width} y1={Math.round(y(tick)) + 0.5} y2={Math.round(y(tick)) + 0.5} className="stroke-line" />
      <text x={left - 6} y={y(tick) + 4} textAnchor="end" className="fill-muted text-[11px] tabular-nums">
        {format(tick)}
      </text>
    </g>
  ))
}

export function TimeAxis({ starts, zone, x, left, width, height }: { starts: number[]; zone: Zone; x: Scale; left: number; width: number; height: number }): ReactNode {
  const offset = zone === 'utc' ? 0 : -new Date(starts[0] ?? 0).getTimezoneOffset() * 60_000
  const style = tickTimeStyle(starts)
  return timeTicks(starts, Math.max(2, Math.floor((width - left) / LABEL_WIDTH)), offset).map((index) => (
    <text key={index} x={x(index)} y={height - 4} textAnchor={anchorOf(x(index), left, width)} className="fill-muted text-[11px] tabular-nums">
      {time(starts[index], zone, style)}
    </text>
  ))
}

export function Bars({ series, at, x, y, slot }: { series: TimeSeries[]; at: number | null; x: Scale; y: Scale; slot: number }): ReactNode {
  const width = Math.max(1, slot - GAP)
  const heights = new Map<number, number>()
  return series.map((one) => (
    <g key={one.name} fill={one.color}>
      {one.values.map((value, index) => {
        if (!value) return null
        const base = heights.get(index) ?? 0
        heights.set(index, base + value)
        const size = Math.max(1, y(base) - y(base + value))
        return <rect key={index} x={x(index) - width / 2} width={width} y={y(base) - size} height={size} opacity={at === null || at === index ? 1 : 0.5} />
      })}
    </g>
  ))
}

export function Lines({ series, x, y }: { series: TimeSeries[]; x: Scale; y: Scale }): ReactNode {
  return series.map((one) => (
    <g key={one.name}>
      <path d={linePath(one.values, x, y)} fill="none" stroke={one.color} strokeWidth={1.5} strokeLinejoin="round" strokeLinecap="round" />
      {one.values.map((value, index) => value !== null && isIsolated(one.values, index) && <circle key={index} cx={x(index)} cy={y(value)} r={2.5} fill={one.color} />)}
    </g>
  ))
}

/** An isolated value between two gaps needs a dot to be visible. */
function isIsolated(values: readonly (number | null)[], index: number): boolean {
  return (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null
}

/** Keeps the first and last label inside the chart. */
function anchorOf(x: number, left: number, width: number): 'start' | 'middle' | 'end' {
  if (x - left < HALF_LABEL) return 'start'
  return width - x < HALF_LABEL ? 'end' : 'middle'
}
