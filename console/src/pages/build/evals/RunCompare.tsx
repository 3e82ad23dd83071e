import { api, type Schemas } from '@/api/client'
import { ago, percent } from '@/lib/format'
import { runTitle } from '@/lib/runs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, ErrorPanel, Section, Select, SkeletonRows } from '@/ui'
import { isRunning, passRate, useDatasetNames } from './RunList'
import { subjectOf, useCaseTexts, type CaseTexts } from './useInputs'

interface RunCompareProps {
  run: Schemas['EvalRun']
  /** Id of the run to compare with. */
  to: number | undefined
  onTo(to: number | undefined): void
  onLog(logId: number): void
}

/** Differences from another run of the same eval. */
export function RunCompare({ run, to, onTo, onLog }: RunCompareProps) {
  const now = useNow(30_000)
  const names = useDatasetNames()
  // Must differ from the limit of the run list: the cache key must not mix infinite and plain queries.
  const runs = api.useQuery('get', '/api/v1/evals/runs', { params: { query: { eval_id: run.eval_id, limit: 100 } } })
  const others = runs.data?.runs.filter((other) => other.id !== run.id && !isRunning(other)) ?? []
  if (others.length === 0 && to === undefined) return null
  return (
    <Section
      title="Compare with"
      aside={
        <Select
          aria-label="Another run"
          className="!w-96 max-w-full max-sm:!w-full"
          value={String(to ?? '')}
          onChange={(event) => onTo(event.target.value === '' ? undefined : Number(event.target.value))}
          options={[{ value: '', label: 'Choose a run' }, ...others.map((other) => ({ value: String(other.id), label: `${runTitle(other, names.get(other.dataset_id ?? ''))}, ${percent(passRate(other))} passed, ${ago(other.created_at, now)}` }))]}
        />
      }
    >
      {to === undefined ? <p className="text-muted">Choose another run of this eval to see what got better and what got worse.</p> : <Flips base={run} to={to} onLog={onLog} />}
    </Section>
  )
}

function Flips({ base, to, onLog }: { base: Schemas['EvalRun']; to: number; onLog(logId: number): void }) {
  const inputs = useCaseTexts(base)
  const query = api.useQuery('get', '/api/v1/evals/runs/{runId}/compare', { params: { path: { runId: to }, query: { to: base.id } } })
  if (query.isError) return <ErrorPanel error={query.error} what="the comparison" onRetry={() => void query.refetch()} />
  if (!query.data) return <SkeletonRows rows={2} />
  const { compared, gained: improved, lost: regressed, run, to: other } = query.data
  return (
    <div className="flex flex-col gap-3">
      <p className="flex flex-wrap items-center gap-2" role="status">
        <span className="tabular-nums">
          {percent(run.pass_rate)} → {percent(other.pass_rate)}
        </span>
        <Badge tone={improved.length > 0 ? 'ok' : 'muted'}>{improved.length} improved</Badge>
        <Badge tone={regressed.length > 0 ? 'err' : 'muted'}>{regressed.length} regressed</Badge>
        <Badge>{compared - improved.length - regressed.length} unchanged</Badge>
      </p>
      <p className="text-xs text-muted">In the results A is this run and B the other one. Score, cost and latency are those of A.</p>
      {compared === 0 && <p className="text-muted">The two runs have no item in common.</p>}
      <div className="grid gap-3 md:grid-cols-2">
        <FlipList title="Regressed" flips={regressed} inputs={inputs} onLog={onLog} />
        <FlipList title="Improved" flips={improved} inputs={inputs} onLog={onLog} />
      </div>
    </div>
  )
}

interface FlipListProps {
  title: string
  flips: readonly Schemas['EvalFlip'][]
  inputs: ReadonlyMap<string, CaseTexts>
  onLog(logId: number): void
}

function FlipList({ title, flips, inputs, onLog }: FlipListProps) {
  if (flips.length === 0) return null
  return (
    <section>
      <h3 className="mb-1 text-xs text-muted">{title}</h3>
      <ul className="card max-h-64 divide-y divide-line overflow-y-auto" aria-label={title} tabIndex={0}>
        {flips.map((flip, at) => (
          <li key={at} className="flex min-h-9 items-center gap-2 px-3">
            <span className="min-w-0 flex-1 truncate">{subjectOf(flip, inputs)}</span>
            <span className="text-xs text-muted tabular-nums">
              {flip.score.toFixed(2)} → {flip.to_score.toFixed(2)}
            </span>
            {flip.log_id !== null && (
              <Button size="sm" kind="ghost" onClick={() => flip.log_id !== null && onLog(flip.log_id)}>
                Open
              </Button>
            )}
          </li>
        ))}
      </ul>
    </section>
  )
}
