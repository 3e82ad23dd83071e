/** Waterfall of a request: one bar per attempt, hatched waits between them, and a tick at the first token. */
import { type ReactNode, useId } from 'react'
import { duration, roundDuration } from '../lib/format'
import { assignColors } from './assign'
import { ERROR_COLOR } from './colors'
import { niceTicks } from './scale'
import { useWidth } from './useWidth'

export interface Span {
  label: string
  /** Name that determines the color; null for a neutral color. */
  colorName: string | null
  startMs: number
  lengthMs: number
  /** Milliseconds since the start of the request. */
  firstTokenMs?: number | null
  failed: boolean
  note?: string
}

interface Props {
  spans: Span[]
  totalMs: number
  label: string
}

const ROW = 28
const AXIS = 18
const NARROW = 420

export function Waterfall({ spans, totalMs, label }: Props): ReactNode {
  const [ref, width] = useWidth<HTMLDivElement>(480)
  const pattern = useId()
  const colorFor = assignColors(spans.map((span) => span.colorName))
  const left = width < NARROW ? 0 : Math.min(190, width * 0.36)
  // On narrow screens each name is above its bar.
  const row = left === 0 ? ROW + 16 : ROW
  const height = spans.length * row + AXIS
  const ticks = niceTicks(Math.max(1, totalMs), width < NARROW ? 2 : 4)
  const end = ticks.at(-1) ?? 1
  const x = (ms: number): number => left + (ms / end) * (width - left - 1)
  return (
    <div ref={ref} style={{ height }}>
      <svg width={width} height={height} role="img" aria-label={`${label}: ${spans.map(describeSpans).join('; ')}`} className="block">
        <defs>
          <pattern id={pattern} width={6} height={6} patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <line y2={6} className="stroke-line-strong" strokeWidth={1.5} />
          </pattern>
        </defs>
        {ticks.map((tick, index) => (
          <g key={tick}>
            <line x1={x(tick)} x2={x(tick)} y2={height - AXIS} className="stroke-line" />
            <text x={x(tick)} y={height - 4} textAnchor={index === 0 ? 'start' : index === ticks.length - 1 ? 'end' : 'middle'} className="fill-muted text-[11px] tabular-nums">
              {roundDuration(tick)}
            </text>
          </g>
        ))}
        {spans.map((span, index) => {
          const top = index * row + (left === 0 ? 18 : 7)
          const before = spans[index - 1]
          const gapFrom = before && !isInside(span, before) ? before.startMs + before.lengthMs : span.startMs
          return (
            <g key={`${span.label} ${span.startMs}`}>
              <text x={0} y={left === 0 ? index * row + 12 : top + 11} className="fill-fg font-mono text-xs">
                {truncate(span.label, left === 0 ? width : left - 10)}
              </text>
              {gapFrom < span.startMs && <rect x={x(gapFrom)} width={x(span.startMs) - x(gapFrom)} y={top} height={14} fill={`url(#${pattern})`} />}
              <rect x={x(span.startMs)} width={Math.max(2, x(span.startMs + span.lengthMs) - x(span.startMs))} y={top} height={14} fill={span.failed ? ERROR_COLOR : colorFor(span.colorName)} opacity={span.firstTokenMs == null ? 1 : 0.55} />
              {span.firstTokenMs != null && (
                <>
                  <rect x={x(span.startMs)} width={Math.max(1, x(span.firstTokenMs) - x(span.startMs))} y={top} height={14} fill={span.failed ? ERROR_COLOR : colorFor(span.colorName)} />
                  <line x1={x(span.firstTokenMs)} x2={x(span.firstTokenMs)} y1={top - 3} y2={top + 17} className="stroke-fg" />
                </>
              )}
            </g>
          )
        })}
      </svg>
    </div>
  )
}

function isInside(span: Span, outer: Span): boolean {
  return span.startMs < outer.startMs + outer.lengthMs
}

function describeSpans(span: Span): string {
  return `${span.label}, from ${duration(span.startMs)} for ${duration(span.lengthMs)}${span.failed ? ', failed' : ''}${span.note ? `, ${span.note}` : ''}`
}

/** Truncates a label, because SVG text has no ellipsis. */
export function truncate(text: string, width: number): string {
  const maxChars = Math.max(4, Math.floor(width / 7.3))
  return text.length > maxChars ? `${text.slice(0, maxChars - 1)}…` : text
}
