import { getRouteApi, Link, useNavigate } from '@tanstack/react-router'
import { Ban, RotateCw, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { api, client, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { duration, integer, money, percent, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { answeredBy, judgedOn, targetOf } from '@/lib/runs'
import { useAction } from '@/lib/useAction'
import { Button, ConfirmDialog, ErrorLine, ErrorPanel, Page, SkeletonCards, SkeletonRows, Stat, Status } from '@/ui'
import { WithLogDrawer } from '../../observe/log/LogDrawer'
import { isRunning, passRate, RUN_TONE, useDatasetNames } from './RunList'
import { Results, WithResultDrawer } from './Results'
import { RunCompare } from './RunCompare'
import { RunOnDataset } from './RunOnDataset'
import type { RunSearch } from './search'
import { useRunUsage } from './useRunUsage'

const route = getRouteApi('/shell/evals/runs/$runId')
type Run = Schemas['EvalRun']

/** One eval run: progress, results and comparison with another run. */
export function RunPage() {
  const runId = Number(route.useParams().runId)
  const search: RunSearch = route.useSearch()
  const navigate = route.useNavigate()
  const set = (change: Partial<RunSearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  const query = api.useQuery('get', '/api/v1/evals/runs/{runId}', { params: { path: { runId } } }, { meta: { quiet: true }, refetchInterval: (latest) => pollInterval(latest.state.data, latest.state.dataUpdateCount) })
  return (
    <WithLogDrawer logId={search.log} tab={search.tab ?? 'conversation'} onTab={(tab) => set({ tab })} onClose={() => set({ log: undefined, tab: undefined })}>
      {query.data ? (
        // The drawer of a request covers that of a verdict, which is there again afterwards.
        <WithResultDrawer run={query.data} to={search.with} order={search.order ?? 'failed'} item={search.log === undefined ? search.item : undefined} onItem={(item) => set({ item })} onLog={(log) => set({ log })}>
          <div className="flex min-h-0 min-w-0 flex-1 flex-col overflow-y-auto">
            <Loaded run={query.data} search={search} set={set} />
          </div>
        </WithResultDrawer>
      ) : (
        <Page title="Run">
          {query.isError ? (
            <ErrorPanel error={query.error} what="this run" onRetry={() => void query.refetch()} />
          ) : (
            <>
              <SkeletonCards />
              <SkeletonRows />
            </>
          )}
        </Page>
      )}
    </WithLogDrawer>
  )
}

/** Poll interval that grows with the age of the run. */
function pollInterval(run: Run | undefined, polls: number): number | false {
  return !run || isRunning(run) ? (polls < 30 ? 1000 : 5000) : false
}

function Loaded({ run, search, set }: { run: Run; search: RunSearch; set(change: Partial<RunSearch>): void }) {
  const { zone } = usePrefs()
  const definition = api.useQuery('get', '/api/v1/evals/{evalId}', { params: { path: { evalId: run.eval_id } } }, { staleTime: 60_000 })
  const running = isRunning(run)
  const [again, setAgain] = useState(false)
  const [deleting, setDeleting] = useState(false)
  const navigate = useNavigate()
  const target = targetOf(run)
  const cancel = useAction(async () => {
    await client.POST('/api/v1/evals/runs/{runId}/cancel', { params: { path: { runId: run.id } } })
    await invalidate('/api/v1/evals/runs')
  })
  const remove = async () => {
    await client.DELETE('/api/v1/evals/runs/{runId}', { params: { path: { runId: run.id } } })
    await navigate({ to: '/evals/$evalId', params: { evalId: String(run.eval_id) } })
    await invalidate('/api/v1/evals')
  }
  const answered = answeredBy(run)
  const names = useDatasetNames()
  return (
    <Page
      title={definition.data ? `Run of ${definition.data.name}` : 'Run'}
      beside={<Status tone={RUN_TONE[run.status]}>{run.status}</Status>}
      about={
        <>
          {time(run.created_at, zone)}
          {answered.length > 0 && (
            <>
              , answers of <code>{answered.join(' · ')}</code>
            </>
          )}
          {', on '}
          {run.dataset_id === null ? (
            'logged requests'
          ) : (
            <Link to="/datasets/$datasetId" params={{ datasetId: run.dataset_id }} search={{ version: run.dataset_version ?? undefined }} className="text-accent underline">
              {judgedOn(run, names.get(run.dataset_id))}
            </Link>
          )}
        </>
      }
      actions={
        <>
          <Link to="/evals/$evalId" params={{ evalId: String(run.eval_id) }} className="btn">
            Definition
          </Link>
          {target && run.dataset_id !== null && (
            <Button needs="member" icon={<RotateCw size={14} aria-hidden />} title="The same cases with another model or prompt, compared with this run" onClick={() => setAgain(true)}>
              Run again
            </Button>
          )}
          {running ? (
            <Button kind="danger" needs="member" busy={cancel.busy} icon={<Ban size={14} aria-hidden />} onClick={cancel.run}>
              Cancel run
            </Button>
          ) : (
            <Button kind="danger" needs="member" icon={<Trash2 size={14} aria-hidden />} onClick={() => setDeleting(true)}>
              Delete run
            </Button>
          )}
        </>
      }
    >
      {again && target && <RunOnDataset evalId={run.eval_id} datasetId={run.dataset_id ?? undefined} version={run.dataset_version ?? undefined} initial={[target]} compareWith={run.id} onClose={() => setAgain(false)} />}
      <ConfirmDialog open={deleting} onClose={() => setDeleting(false)} title="Delete this run?" action="Delete run" onConfirm={remove}>
        Its verdicts are deleted with it. The eval and its other runs stay.
      </ConfirmDialog>
      <Progress run={run} />
      <ErrorLine error={cancel.error} />
      {run.error && (
        <p role="alert" className="card bg-err-soft px-3 py-2 text-err">
          {run.error}
        </p>
      )}
      <div className="grid grid-cols-[repeat(auto-fit,minmax(140px,1fr))] gap-3">
        <Stat label="Passed" value={percent(passRate(run))} note={`${integer(run.passed)} of ${integer(run.passed + run.failed)}`} />
        <Stat label="Failed" value={integer(run.failed)} />
        <Stat label="Errors" value={integer(run.errors)} note={run.errors > 0 ? 'reasons below' : undefined} />
        <RunCost run={run} />
        <Stat label="Took" value={run.started_at === null ? '–' : duration((run.finished_at ? Date.parse(run.finished_at) : Date.now()) - Date.parse(run.started_at))} />
      </div>
      <RunCompare run={run} to={search.with} onTo={(to) => set({ with: to })} onLog={(log) => set({ log })} />
      <Results run={run} to={search.with} order={search.order ?? 'failed'} onOrder={(order) => set({ order: order === 'came' ? 'came' : undefined })} item={search.item} onItem={(item) => set({ item })} onLog={(log) => set({ log })} />
    </Page>
  )
}

/** What the calls of the run cost, those of judges included. */
function RunCost({ run }: { run: Run }) {
  const { usage } = useRunUsage(run)
  if (!usage || usage.requests === 0) return <Stat label="Cost" value="–" note={usage ? 'no model was called' : undefined} />
  return <Stat label="Cost" value={usage.cost_usd === null ? 'no price' : money(usage.cost_usd)} note={`${plural(usage.requests, 'call')}, p50 ${duration(usage.p50_ms)}, p95 ${duration(usage.p95_ms)}`} />
}

/** Progress bar of passed and failed items. */
function Progress({ run }: { run: Run }) {
  const share = (count: number) => `${run.total === 0 ? 0 : (count / run.total) * 100}%`
  return (
    <div>
      <div role="progressbar" aria-label="Judged" aria-valuenow={run.completed} aria-valuemin={0} aria-valuemax={run.total} aria-valuetext={`${run.completed} of ${run.total}`} className="flex h-2 overflow-hidden rounded-full bg-line">
        <div className="h-full bg-ok" style={{ width: share(run.passed) }} />
        <div className="h-full bg-err" style={{ width: share(run.failed) }} />
        <div className="h-full bg-warn" style={{ width: share(run.errors) }} />
      </div>
      <p className="mt-1 text-xs text-muted tabular-nums" role="status">
        {integer(run.completed)} of {integer(run.total)} judged
      </p>
    </div>
  )
}
