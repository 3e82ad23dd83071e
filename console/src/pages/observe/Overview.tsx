import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { lazy, Suspense, type ComponentType } from 'react'
import { api, type Schemas } from '@/api/client'
import { pollingOptions } from '@/api/query'
import { TimeChart, type TimeSeries } from '@/charts/TimeChart'
import { compact, duration, money, moneyTicks, percent, plural, roundDuration, zoneNote } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { withOwnCalls, type OwnCalls } from '@/lib/query'
import { INTERVAL_MS, type Range } from '@/lib/range'
import { bucketStarts, statusSeries, topSeries } from '@/lib/series'
import { useRange } from '@/lib/useRange'
import { ErrorPanel, Page, Skeleton, SkeletonCards } from '@/ui'
import { Components } from './overview/Components'
import { SummaryStats } from './overview/SummaryStats'
import { OwnSwitch } from './OwnSwitch'

const route = getRouteApi('/shell/')
type Bucket = Schemas['Bucket']

// Not part of the first load: most organizations have requests, and tables and limits come last on the page.
const FirstRun = lazy(() => import('./overview/FirstRun').then(({ FirstRun: Component }) => ({ default: Component })))
const Tables = card(() => import('./overview/Tables'))
const LimitsCard = card(() => import('./overview/Limits'))
const TopUsers = card(() => import('./overview/TopUsers'))

/** A card that is left out if its code cannot be loaded: offline, the rest of the page stays. */
function card<Props = object>(load: () => Promise<{ default: ComponentType<Props> }>) {
  return lazy(() => load().catch((): { default: ComponentType<Props> } => ({ default: () => null })))
}

/** Overview: health, traffic and cost. */
export function Overview() {
  const anyLogs = api.useQuery('get', '/api/v1/logs', { params: { query: { limit: 1 } } }, { refetchInterval: (query) => (query.state.data?.logs.length === 0 ? 5000 : false) })
  const range = useRange()
  const { zone } = usePrefs()
  const { own } = route.useSearch()
  const navigate = route.useNavigate()
  // Asked for at once: waiting for the first answer would take as long again.
  const series = useSeries(range, own)
  const hasLogs = (anyLogs.data?.logs.length ?? 0) > 0
  return (
    <Page title="Overview" about={zoneNote(zone)} actions={hasLogs && <OwnSwitch own={own} onChange={(next) => void navigate({ search: (before) => ({ ...before, own: next }), replace: true })} />}>
      <Components />
      {anyLogs.isError ? (
        <ErrorPanel error={anyLogs.error} what="the overview" onRetry={() => void anyLogs.refetch()} />
      ) : !anyLogs.data ? (
        <Loading />
      ) : !hasLogs ? (
        <Suspense fallback={<Loading />}>
          <FirstRun />
        </Suspense>
      ) : (
        <Board range={range} own={own} series={series} />
      )}
    </Page>
  )
}

function useSeries(range: Range, own: OwnCalls) {
  const { from, to, interval } = range
  const query = withOwnCalls('', own) || undefined
  const byStatus = api.useQuery('get', '/api/v1/usage/timeseries', { params: { query: { from, to, interval, by: 'status', query } } }, pollingOptions())
  const byModel = api.useQuery('get', '/api/v1/usage/timeseries', { params: { query: { from, to, interval, by: 'model', query } } }, pollingOptions())
  return { query, byStatus, byModel }
}

function Board({ range, own, series }: { range: Range; own: OwnCalls; series: ReturnType<typeof useSeries> }) {
  const { query, byStatus, byModel } = series
  // One assignment of colours for the chart and the table of models.
  const costs = topSeries(byModel.data?.buckets ?? [], (sums) => sums.cost_usd)
  // What was loaded stays when a later request fails.
  const failed = [byStatus, byModel].filter((query) => query.isError && !query.data)
  if (failed[0]) return <ErrorPanel error={failed[0].error} what="the usage" onRetry={() => failed.forEach((query) => void query.refetch())} />
  return (
    <>
      <SummaryStats range={range} query={query} />
      {byStatus.data && byModel.data ? <Charts range={range} own={own} buckets={byStatus.data.buckets} models={byModel.data.buckets} costs={costs} /> : <LoadingCharts />}
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Suspense fallback={null}>
          <Tables range={range} own={own} costs={costs} />
          <TopUsers />
          <LimitsCard />
        </Suspense>
      </div>
    </>
  )
}

interface ChartsProps {
  range: Range
  own: OwnCalls
  buckets: readonly Bucket[]
  /** The same buckets by model. */
  models: readonly Bucket[]
  costs: TimeSeries[]
}

function Charts({ range, own, buckets, models, costs }: ChartsProps) {
  const navigate = useNavigate()
  const { zone } = usePrefs()
  const { interval } = range
  const iso = (at: number) => new Date(at).toISOString()
  const shared = {
    zone,
    step: INTERVAL_MS[interval],
    starts: bucketStarts(buckets),
    onPick: (begin: number, end: number) => void navigate({ to: '/logs', search: { from: iso(begin), to: iso(end), own } }),
    onRange: (begin: number, end: number) => void navigate({ to: '/', search: { from: iso(begin), to: iso(end), own } }),
  }
  const total = (pick: (bucket: Bucket) => number | null) => buckets.reduce((sum, bucket) => sum + (pick(bucket) ?? 0), 0)
  const requests = total((bucket) => bucket.requests)
  return (
    <div className="grid gap-4 lg:grid-cols-2">
      <TimeChart {...shared} title="Requests" kind="bars" whole series={statusSeries(buckets)} format={compact} summary={`${plural(requests, 'request')}, ${percent(requests === 0 ? null : total((bucket) => bucket.errors) / requests)} errors`} />
      <TimeChart {...shared} title="Cost" kind="bars" starts={bucketStarts(models)} series={costs} format={money} formatTicks={moneyTicks} summary={money(total((bucket) => bucket.cost_usd))} />
      <TimeChart
        {...shared}
        title="Latency"
        kind="lines"
        series={[
          { name: 'p50', color: 'var(--series-1)', values: buckets.map((bucket) => bucket.p50_ms) },
          { name: 'p95', color: 'var(--series-3)', values: buckets.map((bucket) => bucket.p95_ms) },
        ]}
        format={duration}
        formatTicks={() => roundDuration}
      />
      <TimeChart
        {...shared}
        title="Tokens"
        kind="bars"
        series={[
          { name: 'in', color: 'var(--series-2)', values: buckets.map((bucket) => bucket.prompt_tokens) },
          { name: 'out', color: 'var(--series-4)', values: buckets.map((bucket) => bucket.completion_tokens) },
        ]}
        format={compact}
        summary={compact(total((bucket) => bucket.total_tokens))}
      />
    </div>
  )
}

function Loading() {
  return (
    <>
      <SkeletonCards cards={6} className="h-[92px]" />
      <LoadingCharts />
    </>
  )
}

function LoadingCharts() {
  return (
    <div className="grid gap-4 lg:grid-cols-2">
      {[1, 2, 3, 4].map((at) => (
        <div key={at} className="card h-[246px] p-3">
          <Skeleton className="h-4 w-24" />
          <Skeleton className="mt-4 h-40 w-full" />
        </div>
      ))}
    </div>
  )
}
