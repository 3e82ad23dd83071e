import { LoaderCircle } from 'lucide-react'
import type { Schemas } from '@/api/client'
import { Radar } from '@/charts/Radar'
import { Meter } from '@/charts/Bars'
import { ago } from '@/lib/format'
import { AXES } from '@/lib/rubric'
import { useNow } from '@/lib/useNow'
import { Badge, Section } from '@/ui'
import { Score } from './Score'

type Evaluation = Schemas['Evaluation']

interface EvaluationPartProps {
  /** All verdicts, newest first. */
  evaluations: readonly Evaluation[]
  version: number
  threshold: number
}

/** Latest verdict on this version by axis, compared with the previous version. */
export function EvaluationPart({ evaluations, version, threshold }: EvaluationPartProps) {
  const withAxes = evaluations.filter((one) => Object.keys(one.axes).length > 0)
  const shown = withAxes.find((one) => one.skill_version === version)
  const before = shown && withAxes.find((one) => one.skill_version < version && one.source === shown.source)
  return (
    <Section title={`Evaluation of v${version}`} aside={shown && <Score score={shown.overall_score} passed={shown.passed} />}>
      {!shown ? (
        <p className="flex items-center gap-2 text-muted" role="status">
          <LoaderCircle size={14} className="animate-spin" aria-hidden /> Evaluating. The result appears here.
        </p>
      ) : (
        <div className="flex flex-col gap-3">
          <Radar axes={axesOf(shown)} before={before && axesOf(before)} threshold={threshold} label={`Scores of v${version}`} />
          <p className="text-center text-xs text-muted">
            Dashed: threshold {threshold.toFixed(2)}
            {before && `. Grey: v${before.skill_version}`}
          </p>
          <ul aria-label="Axes" className="flex flex-col gap-2.5">
            {axesOf(shown).map(({ name, score }) => (
              <li key={name}>
                <div className="flex items-baseline gap-2">
                  <span className="flex-1 font-medium">{name}</span>
                  {before?.axes[name] && <Change now={score} before={before.axes[name].score} />}
                  <span className="tabular-nums">{score.toFixed(2)}</span>
                </div>
                <Meter share={score} mark={threshold} color={score >= threshold ? 'var(--ok)' : 'var(--err)'} />
                {shown.axes[name]?.rationale && <p className="mt-1 text-xs text-muted">{shown.axes[name].rationale}</p>}
              </li>
            ))}
          </ul>
          <p className="text-xs text-muted">
            Judged by <code>{shown.judge_provider}/{shown.judge_model}</code>
          </p>
        </div>
      )}
    </Section>
  )
}

function Change({ now, before }: { now: number; before: number }) {
  const change = now - before
  if (Math.abs(change) < 0.005) return null
  return (
    <span className={change > 0 ? 'text-xs text-ok tabular-nums' : 'text-xs text-err tabular-nums'}>
      {change > 0 ? '+' : '−'}
      {Math.abs(change).toFixed(2)}
    </span>
  )
}

/** Known axes in their defined order, then all others. */
function axesOf(evaluation: Evaluation) {
  const names = [...AXES.filter((axis) => axis in evaluation.axes), ...Object.keys(evaluation.axes).filter((axis) => !AXES.some((known) => known === axis))]
  return names.map((name) => ({ name, score: evaluation.axes[name]?.score ?? 0 }))
}

/** All verdicts with their source; sources that the rubric does not allow are marked. */
export function VerdictList({ evaluations, allowed }: { evaluations: readonly Evaluation[]; allowed: readonly string[] }) {
  const now = useNow(30_000)
  if (evaluations.length === 0) return null
  return (
    <Section title="All verdicts" flush>
      <ul className="max-h-72 overflow-y-auto" aria-label="Verdicts" tabIndex={0}>
        {evaluations.map((one) => (
          <li key={one.id} className="flex min-h-10 flex-wrap items-center gap-2 border-t border-line px-3 py-1">
            <span className="tabular-nums">v{one.skill_version}</span>
            <Score score={one.overall_score} passed={one.passed} />
            <Badge tone={allowed.includes(one.source) ? 'accent' : 'muted'} title={allowed.includes(one.source) ? 'Counts for publishing' : 'This source is not allowed by the rubric'}>
              {one.source}
            </Badge>
            {one.external_ref && <span className="name min-w-0 truncate font-mono text-xs text-muted">{one.external_ref}</span>}
            <span className="ml-auto text-xs text-muted">{ago(one.created_at, now)}</span>
          </li>
        ))}
      </ul>
    </Section>
  )
}
