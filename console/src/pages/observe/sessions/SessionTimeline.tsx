import { useMemo, useState, type PointerEvent } from 'react'
import { api, type Schemas } from '@/api/client'
import type { LogRow } from '@/api/logs'
import { assignColors } from '@/charts/assign'
import { ERROR_COLOR, OTHER_COLOR } from '@/charts/colors'
import { useWidth } from '@/charts/useWidth'
import { truncate } from '@/charts/Waterfall'
import { isFailed } from '@/lib/failureState'
import { cost, duration, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { compressGaps, instantAt, positionOf, type TimeSegment } from '@/lib/timeline'
import { Button, ErrorPanel, SkeletonRows, Status, Table, type Column } from '@/ui'

type Event = Schemas['Event']

interface SessionTimelineProps {
  sessionId: string
  requests: readonly LogRow[]
  onOpen(logId: number): void
}

const ROW = 22
const AXIS = 20
const LABEL_WIDTH = 52

/** Requests and attempts as bars on a time axis with compressed gaps. Dragging zooms; a table has the same data. */
export function SessionTimeline({ sessionId, requests, onOpen }: SessionTimelineProps) {
  const [zoom, setZoom] = useState<{ from: number; to: number } | null>(null)
  const providers = useMemo(() => providersOf(requests), [requests])
  const colorFor = useMemo(() => assignColors(providers), [providers])
  const lines = useMemo(() => linesOf(requests, colorFor).filter((line) => !zoom || (line.end >= zoom.from && line.start <= zoom.to)), [requests, colorFor, zoom])
  return (
    <div className="flex flex-col gap-4 p-4">
      <div className="flex min-h-7 flex-wrap items-center gap-x-4 gap-y-1 text-xs text-muted">
        <span className="flex-1">Drag to zoom; idle time is compressed.</span>
        <Legend providers={providers} colorFor={colorFor} hasAttempts={requests.some((row) => row.attempts.length > 1)} />
        {zoom && (
          <Button size="sm" onClick={() => setZoom(null)}>
            Show all
          </Button>
        )}
      </div>
      <Drawing lines={lines} zoom={zoom} onZoom={setZoom} onOpen={onOpen} />
      <Events sessionId={sessionId} onOpen={onOpen} />
    </div>
  )
}

interface Line {
  id: number
  label: string
  start: number
  end: number
  color: string
  nested: boolean
  description: string
}

/** Providers in the order of their calls, those of attempts included. */
function providersOf(requests: readonly LogRow[]): string[] {
  const calls = requests.toSorted((a, b) => a.id - b.id).flatMap((row) => [...row.attempts.map((attempt) => attempt.provider), row.provider])
  return [...new Set(calls)]
}

function linesOf(requests: readonly LogRow[], colorFor: (provider: string) => string): Line[] {
  return requests
    .toSorted((a, b) => a.id - b.id)
    .flatMap((row) => {
      const start = Date.parse(row.created_at)
      const request: Line = {
        id: row.id,
        label: row.model ?? row.provider,
        start,
        end: start + row.latency_ms,
        color: isFailed(row) ? ERROR_COLOR : colorFor(row.provider),
        nested: false,
        description: `${row.provider}/${row.model ?? ''}: ${row.status}${row.error_code === null ? '' : ` ${row.error_code}`} in ${duration(row.latency_ms)}`,
      }
      if (row.attempts.length < 2) return [request]
      return [
        request,
        ...row.attempts.map((attempt) => ({
          id: row.id,
          label: attempt.provider,
          start: start + attempt.start_ms,
          end: start + attempt.start_ms + attempt.latency_ms,
          color: attempt.status === null || attempt.status >= 400 || attempt.error !== null ? ERROR_COLOR : colorFor(attempt.provider),
          nested: true,
          description: `${attempt.provider}/${attempt.model ?? ''}: ${attempt.error ?? attempt.status ?? 'no answer'} in ${duration(attempt.latency_ms)}`,
        })),
      ]
    })
}

interface DrawingProps {
  lines: readonly Line[]
  zoom: { from: number; to: number } | null
  onZoom(zoom: { from: number; to: number }): void
  onOpen(logId: number): void
}

function Drawing({ lines, zoom, onZoom, onOpen }: DrawingProps) {
  const { zone } = usePrefs()
  const [ref, width] = useWidth<HTMLDivElement>(640)
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null)
  const clip = (at: number) => (zoom ? Math.min(zoom.to, Math.max(zoom.from, at)) : at)
  const segments = useMemo(() => compressGaps(lines.map((line) => ({ start: clip(line.start), end: clip(line.end) }))), [lines, zoom])
  const left = width < 480 ? 76 : 150
  const x = (at: number) => left + positionOf(clip(at), segments) * (width - left - 4)
  const height = lines.length * ROW + AXIS
  const dragPosition = (event: PointerEvent) => Math.min(1, Math.max(0, (event.clientX - (ref.current?.getBoundingClientRect().left ?? 0) - left) / (width - left - 4)))
  const finish = () => {
    if (drag && Math.abs(drag.to - drag.from) > 0.01) {
      const [from, to] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)]
      onZoom({ from: instantAt(from, segments), to: instantAt(to, segments) })
    }
    setDrag(null)
  }
  const ticks = axisTicks(segments, (at) => x(at), width)
  const begin = segments[0]?.from ?? 0
  // Within a minute the times of day are nearly alike: what differs is the time since the beginning.
  const isShort = (segments.at(-1)?.to ?? 0) - begin < 60_000
  return (
    <div ref={ref} className="max-h-[480px] overflow-y-auto" role="region" aria-label="Timeline" tabIndex={0}>
      <svg
        width={width}
        height={height}
        role="img"
        aria-label={`Timeline of ${lines.length} calls`}
        className="block cursor-crosshair touch-pan-y select-none"
        onPointerDown={(event) => event.button === 0 && setDrag({ from: dragPosition(event), to: dragPosition(event) })}
        onPointerMove={(event) => drag && setDrag({ ...drag, to: dragPosition(event) })}
        onPointerUp={finish}
        onPointerLeave={() => setDrag(null)}
      >
        {segments
          .filter((segment) => segment.isGap)
          .map((segment) => (
            <g key={segment.from}>
              <title>{`idle for ${duration(segment.to - segment.from)}`}</title>
              <rect x={left + segment.left * (width - left - 4)} width={(segment.right - segment.left) * (width - left - 4)} height={height - AXIS} className="fill-sunken" />
            </g>
          ))}
        {drag && <rect x={left + Math.min(drag.from, drag.to) * (width - left - 4)} width={Math.abs(drag.to - drag.from) * (width - left - 4)} height={height} className="fill-accent opacity-15" />}
        {lines.map((line, at) => (
          <g key={`${line.id} ${at}`} className="cursor-pointer" onClick={() => onOpen(line.id)}>
            <title>{line.description}</title>
            <rect x={0} y={at * ROW} width={width} height={ROW} fill="transparent" />
            <text x={line.nested ? 12 : 0} y={at * ROW + 15} className={line.nested ? 'fill-muted font-mono text-[11px]' : 'fill-fg font-mono text-[11px]'}>
              {truncate(line.label, left - (line.nested ? 20 : 8))}
            </text>
            <rect x={x(line.start)} width={Math.max(3, x(line.end) - x(line.start))} y={at * ROW + (line.nested ? 8 : 5)} height={line.nested ? 6 : 12} fill={line.color} />
            <Length line={line} from={x(line.start)} to={Math.max(x(line.start) + 3, x(line.end))} y={at * ROW + 15} left={left} width={width} />
          </g>
        ))}
        {ticks.map((tick) => (
          <g key={tick.at}>
            <line x1={x(tick.at)} x2={x(tick.at)} y2={height - AXIS} className="stroke-line" />
            <text x={x(tick.at)} y={height - 6} textAnchor={tick.anchor} className="fill-muted text-[11px] tabular-nums">
              {isShort && tick.at > begin ? `+${duration(tick.at - begin)}` : time(tick.at, zone, 'time')}
            </text>
          </g>
        ))}
      </svg>
    </div>
  )
}

/** The duration beside the bar: after it, or before it at the right edge. */
function Length({ line, from, to, y, left, width }: { line: Line; from: number; to: number; y: number; left: number; width: number }) {
  const text = duration(line.end - line.start)
  const room = text.length * 7
  const isAfter = to + room < width
  if (!isAfter && from - room < left) return null
  return (
    <text x={isAfter ? to + 4 : from - 4} y={y} textAnchor={isAfter ? 'start' : 'end'} className="fill-muted text-[11px] tabular-nums">
      {text}
    </text>
  )
}

/** Times at the beginning of each stretch of activity and at the end, as far apart as their labels are wide. */
function axisTicks(segments: readonly TimeSegment[], x: (at: number) => number, width: number): { at: number; anchor: 'start' | 'end' }[] {
  const ticks: { at: number; anchor: 'start' | 'end' }[] = []
  let free = 0
  for (const { from, isGap } of segments) {
    if (isGap || x(from) < free || x(from) + LABEL_WIDTH > width) continue
    ticks.push({ at: from, anchor: 'start' })
    free = x(from) + LABEL_WIDTH + 60
  }
  const end = segments.at(-1)?.to
  if (end !== undefined && x(end) - LABEL_WIDTH > free) ticks.push({ at: end, anchor: 'end' })
  return ticks
}

/** What the colours and the thin bars mean. */
function Legend({ providers, colorFor, hasAttempts }: { providers: readonly string[]; colorFor: (provider: string) => string; hasAttempts: boolean }) {
  const items = providers.map((name) => ({ name, color: colorFor(name) })).filter(({ color }) => color !== OTHER_COLOR)
  if (items.length < providers.length) items.push({ name: 'other providers', color: OTHER_COLOR })
  items.push({ name: 'failed', color: ERROR_COLOR })
  return (
    <ul aria-label="Legend" className="flex flex-wrap gap-x-3">
      {items.map(({ name, color }) => (
        <li key={name} className="flex items-center gap-1.5">
          <span className="size-2 rounded-[2px]" style={{ background: color }} aria-hidden />
          {name}
        </li>
      ))}
      {hasAttempts && <li>thin bars: attempts</li>}
    </ul>
  )
}

const TONE = { request: 'muted', fallback: 'warn', cache_hit: 'accent', error: 'err', response: 'ok' } as const

function Events({ sessionId, onOpen }: { sessionId: string; onOpen(logId: number): void }) {
  const { zone } = usePrefs()
  const timeline = api.useQuery('get', '/api/v1/sessions/{sessionId}/timeline', { params: { path: { sessionId } } })
  const columns: Column<Event & { number: number }>[] = [
    { key: 'at', header: 'Time', cell: (event) => <time dateTime={event.at} title={time(event.at, zone, 'full')} className="whitespace-nowrap text-muted">{time(event.at, zone, 'time')}</time> },
    { key: 'type', header: 'Event', cell: (event) => <Status tone={TONE[event.type]}>{event.type.replace('_', ' ')}</Status> },
    { key: 'target', header: 'Target', className: 'name max-w-64 truncate', cell: (event) => <code>{event.model ? `${event.provider}/${event.model}` : event.provider}</code> },
    { key: 'status', header: 'Status', number: true, from: 'sm', cell: (event) => event.status ?? '' },
    { key: 'latency', header: 'Took', number: true, from: 'sm', cell: (event) => (event.latency_ms == null ? '' : duration(event.latency_ms)) },
    { key: 'cost', header: 'Cost', number: true, from: 'md', cell: (event) => (event.cost_usd == null ? '' : cost(event.cost_usd)) },
    { key: 'error', header: 'Error', className: 'max-w-64 truncate', from: 'md', cell: (event) => event.error ?? '' },
  ]
  if (timeline.isError) return <ErrorPanel error={timeline.error} what="the timeline" onRetry={() => void timeline.refetch()} />
  if (!timeline.data) return <SkeletonRows rows={6} />
  return (
    <div className="card">
      <Table label="Events" columns={columns} rows={timeline.data.events.map((event, number) => ({ ...event, number }))} rowKey={(event) => event.number} onOpen={(event) => onOpen(event.log_id)} />
    </div>
  )
}
