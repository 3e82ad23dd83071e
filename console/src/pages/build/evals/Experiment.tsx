import { useQueries } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { Meter } from '@/charts/Bars'
import { api, type Schemas } from '@/api/client'
import { cost, duration, integer, percent } from '@/lib/format'
import { parseIds } from '@/lib/replays'
import { answeredBy, judgedOn } from '@/lib/runs'
import { Empty, ErrorPanel, Page, Section, SkeletonRows, Status } from '@/ui'
import { isRunning, passRate, RUN_TONE, useDatasetNames } from './RunList'
import type { ExperimentSearch } from './search'
import { useRunUsage } from './useRunUsage'

const route = getRouteApi('/shell/evals/experiment')
const MAX_RUNS = 100

type Run = Schemas['EvalRun']

/** Runs that were started together: evals in rows, models in columns. The address is the experiment and can be shared. */
export function Experiment() {
  const search: ExperimentSearch = route.useSearch()
  const ids = parseIds(search.runs, MAX_RUNS)
  const names = useDatasetNames()
  const evals = api.useQuery('get', '/api/v1/evals', { params: { query: { limit: 200 } } }, { staleTime: 60_000 })
  const queries = useQueries({
    queries: ids.map((runId) => ({ ...api.queryOptions('get', '/api/v1/evals/runs/{runId}', { params: { path: { runId } } }), meta: { quiet: true }, refetchInterval: (query: { state: { data?: Run | undefined } }) => (!query.state.data || isRunning(query.state.data) ? 2000 : (false as const)) })),
  })
  const failed = queries.find((query) => query.isError)
  const runs = queries.flatMap((query) => query.data ?? [])
  const first = runs[0]
  const targets = [...new Set(runs.map(targetName))]
  const evalIds = [...new Set(runs.map((run) => run.eval_id))]
  return (
    <Page title="Experiment" about={first ? `${integer(runs.length)} runs on ${judgedOn(first, names.get(first.dataset_id ?? ''))}` : 'Runs that were started together'}>
      {ids.length === 0 ? (
        <Empty title="No runs" action={<Link to="/datasets" className="text-accent underline">Choose a dataset</Link>}>
          Open a dataset, choose Run eval, and add several evals or models to compare them here.
        </Empty>
      ) : failed ? (
        <ErrorPanel error={failed.error} what="the runs" onRetry={() => void failed.refetch()} />
      ) : runs.length < ids.length ? (
        <SkeletonRows />
      ) : (
        <Section flush title="Evals and models">
          <div className="overflow-x-auto" role="region" tabIndex={0} aria-label="Evals and models">
            <table className="table">
              <thead>
                <tr>
                  <th scope="col">Eval</th>
                  {targets.map((target) => (
                    <th key={target} scope="col" className="min-w-44">
                      {target}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {evalIds.map((evalId) => (
                  <tr key={evalId} className="align-top">
                    <td className="!align-top py-2 font-medium">{evals.data?.evals.find((one) => one.id === evalId)?.name ?? evalId}</td>
                    {targets.map((target) => (
                      <td key={target} className="!align-top py-1">
                        {runs
                          .filter((run) => run.eval_id === evalId && targetName(run) === target)
                          .map((run) => (
                            <Cell key={run.id} run={run} best={isBest(run, runs)} />
                          ))}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Section>
      )}
    </Page>
  )
}

function targetName(run: Run): string {
  return answeredBy(run).join(' · ') || 'stored outputs'
}

/** Whether a finished run has the highest pass rate of its eval, and another one has a lower. */
function isBest(run: Run, runs: readonly Run[]): boolean {
  const rates = runs.filter((one) => one.eval_id === run.eval_id && !isRunning(one)).flatMap((one) => passRate(one) ?? [])
  const rate = passRate(run)
  return rate !== null && !isRunning(run) && rate === Math.max(...rates) && rates.some((one) => one < rate)
}

function Cell({ run, best }: { run: Run; best: boolean }) {
  const { usage } = useRunUsage(run)
  const rate = passRate(run)
  return (
    <div className="pb-1">
      <Link to="/evals/runs/$runId" params={{ runId: String(run.id) }} className="inline-flex min-h-6 items-center gap-2 text-accent underline">
        <span className="text-base font-semibold tabular-nums">{percent(rate)}</span>
        <span className="text-xs">
          passed{best && ', best'}
        </span>
      </Link>
      <Meter share={rate ?? 0} color="var(--ok)" />
      <p className="mt-1 flex flex-wrap gap-x-2 text-xs text-muted tabular-nums">
        {isRunning(run) || run.status !== 'completed' ? (
          <Status tone={RUN_TONE[run.status]}>{run.status}</Status>
        ) : null}
        <span>
          {integer(run.completed)} of {integer(run.total)}
        </span>
        {run.errors > 0 && <span className="text-err">{integer(run.errors)} errors</span>}
        {usage && usage.requests > 0 && (
          <>
            <span>{usage.cost_usd === null ? 'no price' : cost(usage.cost_usd)}</span>
            <span>p50 {duration(usage.p50_ms)}</span>
          </>
        )}
      </p>
    </div>
  )
}
