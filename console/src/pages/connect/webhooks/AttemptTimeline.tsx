/** Delivery attempts on a logarithmic time axis, because delays grow from seconds to hours. */
import type { Schemas } from '@/api/client'
import { duration, roundDuration } from '@/lib/format'
import { useWidth } from '@/charts/useWidth'

const HEIGHT = 56
const LINE = 26

export function AttemptTimeline({ delivery }: { delivery: Schemas['Delivery'] }) {
  const [ref, width] = useWidth<HTMLDivElement>(480)
  const start = Date.parse(delivery.created_at)
  const marks = [
    ...delivery.attempts.map((attempt) => ({ at: Date.parse(attempt.at) - start, failed: attempt.error !== null || (attempt.status_code ?? 0) >= 300, isNext: false })),
    ...(delivery.next_attempt_at === null ? [] : [{ at: Date.parse(delivery.next_attempt_at) - start, failed: false, isNext: true }]),
  ]
  if (marks.length === 0) return null
  const scale = (ms: number): number => Math.log10(1 + Math.max(0, ms) / 1000)
  const maxScale = Math.max(scale(60_000), ...marks.map((mark) => scale(mark.at)))
  const x = (ms: number): number => 8 + (scale(ms) / maxScale) * (width - 24)
  const ticks = [0, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000].filter((ms) => scale(ms) <= maxScale)
  const summary = marks.map((mark) => `${duration(mark.at)}: ${mark.isNext ? 'next attempt' : mark.failed ? 'failed' : 'delivered'}`).join(', ')
  return (
    <div ref={ref} style={{ height: HEIGHT }}>
      <svg width={width} height={HEIGHT} role="img" aria-label={`Attempts after the event: ${summary}`} className="block">
        <line x1={8} x2={width - 8} y1={LINE} y2={LINE} className="stroke-line-strong" />
        {ticks.map((ms) => (
          <g key={ms}>
            <line x1={x(ms)} x2={x(ms)} y1={LINE - 3} y2={LINE + 3} className="stroke-line-strong" />
            <text x={x(ms)} y={HEIGHT - 6} textAnchor={ms === 0 ? 'start' : x(ms) > width - 24 ? 'end' : 'middle'} className="fill-muted text-[11px]">
              {ms === 0 ? 'event' : `+${roundDuration(ms)}`}
            </text>
          </g>
        ))}
        {marks.map((mark) => (
          <circle key={mark.at} cx={x(mark.at)} cy={LINE} r={6} fill={mark.isNext ? 'var(--surface)' : mark.failed ? 'var(--err)' : 'var(--ok)'} stroke={mark.isNext ? 'var(--warn)' : 'var(--surface)'} strokeWidth={2} strokeDasharray={mark.isNext ? '3 2' : undefined} />
        ))}
      </svg>
    </div>
  )
}
