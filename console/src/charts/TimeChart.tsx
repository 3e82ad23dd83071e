/**
 * Time series chart: stacked bars or lines. Pointer or arrow keys move a crosshair whose values are shown next to the
 * title. A click or Enter selects the bucket, dragging selects a range. Missing values are gaps, not zeros.
 */
import { type KeyboardEvent, type PointerEvent, type ReactNode, useState } from 'react'
import { NO_VALUE, time, type Zone } from '../lib/format'
import { ChartFrame } from './ChartFrame'
import { linePath, niceTicks, tickTimeStyle, timeTicks } from './scale'
import { useWidth } from './useWidth'

export interface TimeSeries {
  name: string
  color: string
  /** One value per bucket. */
  values: (number | null)[]
}

export interface TimeChartProps {
  title: string
  kind: 'bars' | 'lines'
  /** Bucket start times in milliseconds. */
  starts: number[]
  /** Bucket length in milliseconds. */
  step: number
  /** Stacking order, from the bottom. */
  series: TimeSeries[]
  format: (value: number) => string
  zone: Zone
  /** Shown next to the title while nothing is hovered. */
  summary?: ReactNode
  /** Horizontal limit lines. */
  marks?: { name: string; value: number; color: string }[]
  onPick?: (from: number, to: number) => void
  onRange?: (from: number, to: number) => void
}

const HEIGHT = 160
const BOTTOM = 18
const TOP = 6
const GAP = 2

export function TimeChart(props: TimeChartProps): ReactNode {
  const { title, kind, starts, step, series, format, zone, summary, marks = [], onPick, onRange } = props
  const [ref, width] = useWidth<HTMLDivElement>(600)
  const [at, setAt] = useState<number | null>(null)
  const [dragFrom, setDragFrom] = useState<number | null>(null)
  const count = starts.length
  const totals = starts.map((_, index) => sum(series.map((one) => one.values[index] ?? null)))
  const peaks = kind === 'bars' ? totals : series.flatMap((one) => one.values)
  const ticks = niceTicks(Math.max(0, ...peaks.map((value) => value ?? 0), ...marks.map((mark) => mark.value)))
  const top = ticks.at(-1) ?? 1
  const left = Math.max(...ticks.map((tick) => format(tick).length)) * 6.5 + 8
  const slot = count > 0 ? (width - left) / count : 0
  const x = (index: number): number => left + (index + 0.5) * slot
  const y = (value: number): number => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)
  const offset = zone === 'utc' ? 0 : -new Date(starts[0] ?? 0).getTimezoneOffset() * 60_000
  const style = tickTimeStyle(starts)
  const bucketSummary = (index: number): string =>
    `${bucketName(starts[index], step, zone)}: ${series.map((one) => `${one.name} ${formatOrDash(one.values[index], format)}`).join(', ')}`
  const bucketAt = (event: PointerEvent<SVGSVGElement>): number => {
    const box = event.currentTarget.getBoundingClientRect()
    return Math.min(count - 1, Math.max(0, Math.floor((event.clientX - box.left - left) / slot)))
  }
  const release = (event: PointerEvent<SVGSVGElement>): void => {
    const end = bucketAt(event)
    const [from, to] = [Math.min(dragFrom ?? end, end), Math.max(dragFrom ?? end, end)]
    if (dragFrom !== null) (from === to ? onPick : onRange)?.(starts[from] ?? 0, (starts[to] ?? 0) + step)
    setDragFrom(null)
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    const moves: Record<string, number> = { ArrowLeft: (at ?? count) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: count - 1 }
    const next = moves[event.key]
    if (next !== undefined) setAt(Math.min(count - 1, Math.max(0, next)))
    else if (event.key === 'Enter' && at !== null) onPick?.(starts[at] ?? 0, (starts[at] ?? 0) + step)
    else if (event.key === 'Escape' && at !== null) setAt(null)
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const picked = dragFrom !== null && at !== null ? [Math.min(dragFrom, at), Math.max(dragFrom, at)] : null
  return (
    <ChartFrame
      title={title}
      value={at === null ? summary : bucketSummary(at)}
      legend={series.length > 1 || marks.length > 0 ? [...series, ...marks].map(({ name, color }) => ({ name, color })) : []}
      table={{
        header: ['Time', ...series.map((one) => one.name)],
        rows: starts.map((start, index) => [bucketName(start, step, zone), ...series.map((one) => formatOrDash(one.values[index], format))]),
      }}
    >
      <div ref={ref} className="relative h-40">
        <svg
          width={width}
          height={HEIGHT}
          className="absolute block touch-pan-y select-none"
          role="slider"
          tabIndex={0}
          aria-label={title}
          aria-valuemin={0}
          aria-valuemax={Math.max(0, count - 1)}
          aria-valuenow={at ?? 0}
          aria-valuetext={at === null ? 'Arrow keys move through time' : bucketSummary(at)}
          onKeyDown={onKeyDown}
          onBlur={() => setAt(null)}
          onPointerMove={(event) => count > 0 && setAt(bucketAt(event))}
          onPointerLeave={() => dragFrom === null && setAt(null)}
          onPointerDown={(event) => {
            if (event.button !== 0 || count === 0 || (!onPick && !onRange)) return
            setDragFrom(bucketAt(event))
            event.currentTarget.setPointerCapture(event.pointerId)
          }}
          onPointerUp={release}
          onPointerCancel={() => setDragFrom(null)}
        >
          <Axis ticks={ticks} y={y} left={left} width={width} format={format} />
          {timeTicks(starts, Math.max(2, Math.floor((width - left) / 90)), offset).map((index) => (
            <text key={index} x={x(index)} y={HEIGHT - 4} textAnchor={anchorOf(x(index), left, width)} className="fill-muted text-[11px] tabular-nums">
              {time(starts[index], zone, style)}
            </text>
          ))}
          {picked && <rect x={left + (picked[0] ?? 0) * slot} width={((picked[1] ?? 0) - (picked[0] ?? 0) + 1) * slot} y={TOP} height={HEIGHT - TOP - BOTTOM} className="fill-accent opacity-15" />}
          {kind === 'bars' ? <Bars series={series} at={at} x={x} y={y} slot={slot} /> : <Lines series={series} x={x} y={y} />}
          {marks.map((mark) => (
            <line key={mark.name} x1={left} x2={width} y1={y(mark.value)} y2={y(mark.value)} stroke={mark.color} strokeDasharray="4 3" />
          ))}
          {at !== null && kind === 'lines' && <line x1={x(at)} x2={x(at)} y1={TOP} y2={HEIGHT - BOTTOM} className="stroke-line-strong" />}
        </svg>
      </div>
    </ChartFrame>
  )
}

function Axis({ ticks, y, left, width, format }: { ticks: number[]; y: (value: number) => number; left: number; width: number; format: (value: number) => string }): ReactNode {
  return ticks.map((tick) => (
    <g key={tick}>
      <line x1={left} x2={width} y1={Math.round(y(tick)) + 0.5} y2={Math.round(y(tick)) + 0.5} className="stroke-line" />
      <text x={left - 6} y={y(tick) + 4} textAnchor="end" className="fill-muted text-[11px] tabular-nums">
        {format(tick)}
      </text>
    </g>
  ))
}

function Bars({ series, at, x, y, slot }: { series: TimeSeries[]; at: number | null; x: (index: number) => number; y: (value: number) => number; slot: number }): ReactNode {
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

function Lines({ series, x, y }: { series: TimeSeries[]; x: (index: number) => number; y: (value: number) => number }): ReactNode {
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
  if (x - left < 18) return 'start'
  return width - x < 18 ? 'end' : 'middle'
}

function bucketName(start: number | undefined, step: number, zone: Zone): string {
  if (start === undefined) return NO_VALUE
  return step >= 86_400_000 ? time(start, zone, 'date') : `${time(start, zone, 'day')} ${time(start, zone, 'minute')}`
}

function formatOrDash(value: number | null | undefined, format: (value: number) => string): string {
  return value == null ? NO_VALUE : format(value)
}

function sum(values: (number | null)[]): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0)
}
