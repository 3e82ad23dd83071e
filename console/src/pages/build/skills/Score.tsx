import { Badge } from '@/ui'

interface ScoreProps {
  score: number
  passed: boolean
}

const RADIUS = 7
const CIRCUMFERENCE = 2 * Math.PI * RADIUS

/** Score as ring, number and label, so that color is not the only signal. */
export function Score({ score, passed }: ScoreProps) {
  return (
    <span className="inline-flex items-center gap-1.5 whitespace-nowrap">
      <svg width={18} height={18} viewBox="-9 -9 18 18" aria-hidden className="-rotate-90">
        <circle r={RADIUS} fill="none" strokeWidth={3} className="stroke-line" />
        <circle r={RADIUS} fill="none" strokeWidth={3} stroke={passed ? 'var(--ok)' : 'var(--err)'} strokeDasharray={`${score * CIRCUMFERENCE} ${CIRCUMFERENCE}`} />
      </svg>
      <span className="tabular-nums">{score.toFixed(2)}</span>
      <Badge tone={passed ? 'ok' : 'err'}>{passed ? 'passed' : 'failed'}</Badge>
    </span>
  )
}
