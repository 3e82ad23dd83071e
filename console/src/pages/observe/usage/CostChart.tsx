import { useQueries } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { api, type Schemas } from '@/api/client'
import { pollingOptions } from '@/api/query'
import { namedGroups } from '@/charts/assign'
import { OTHER_COLOR } from '@/charts/colors'
import { TimeChart, type TimeSeries } from '@/charts/TimeChart'
import { money, moneyTicks } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { joinTerms, term, withOwnCalls } from '@/lib/query'
import { INTERVAL_MS, type Range } from '@/lib/range'
import { OTHER, bucketStarts } from '@/lib/series'
import { ErrorPanel, Skeleton } from '@/ui'
import type { Group, UsageSearch } from './search'

type Row = Schemas['BreakdownRow']

interface CostChartProps {
  range: Range
  by: Group
  search: Pick<UsageSearch, 'query' | 'own'>
  rows: readonly Row[]
  /** The same as in the table. */
  colorFor(key: string): string
  budgets: readonly Schemas['Budget'][]
}

/**
 * Stacked cost over time. The API groups a series only by provider and model; of other groups the largest ones are
 * queried one by one.
 */
export function CostChart({ range, by, search, rows, colorFor, budgets }: CostChartProps) {
  const { zone } = usePrefs()
  const navigate = useNavigate()
  const { from, to, interval } = range
  const query = withOwnCalls(search.query ?? '', search.own)
  const grouped = by === 'provider' ? 'provider' : 'model'
  const totals = api.useQuery('get', '/api/v1/usage/timeseries', { params: { query: { from, to, interval, by: grouped, query: query || undefined } } }, pollingOptions(60_000))
  const isGrouped = by === 'model' || by === 'provider'
  const largest = namedGroups(rows).map(({ key, name }) => ({ key, name, color: colorFor(key) }))
  const parts = useQueries({
    queries: (isGrouped ? [] : largest).map((row) => ({
      ...api.queryOptions('get', '/api/v1/usage/timeseries', { params: { query: { from, to, interval, query: joinTerms(query, term(by, row.key)) } } }),
      staleTime: 60_000,
    })),
  })
  if (totals.isError) return <ErrorPanel error={totals.error} what="the chart" onRetry={() => void totals.refetch()} />
  if (!totals.data || parts.some((part) => !part.data)) {
    return (
      <div className="card h-[246px] p-3">
        <Skeleton className="h-4 w-24" />
        <Skeleton className="mt-4 h-40 w-full" />
      </div>
    )
  }
  const buckets = totals.data.buckets
  const total = buckets.reduce((sum, bucket) => sum + (bucket.cost_usd ?? 0), 0)
  const series: TimeSeries[] =
    appendRemainder(
      largest.map(({ key, name, color }, at) => ({ name, color, values: isGrouped ? buckets.map((bucket) => bucket.groups?.find((group) => group.key === key)?.cost_usd ?? 0) : costs(parts[at]?.data?.buckets ?? []) })),
      costs(buckets),
      restName(rows, largest.length),
    )
  const iso = (at: number) => new Date(at).toISOString()
  return (
    <TimeChart
      title="Cost"
      kind="bars"
      starts={bucketStarts(buckets)}
      step={INTERVAL_MS[interval]}
      series={series}
      format={money}
      formatTicks={moneyTicks}
      zone={zone}
      summary={money(total)}
      marks={limits(budgets, interval)}
      onPick={(begin, end) => void navigate({ to: '/logs', search: { ...search, from: iso(begin), to: iso(end) } })}
      onRange={(begin, end) => void navigate({ to: '/usage', search: { by, ...search, from: iso(begin), to: iso(end) } })}
    />
  )
}

function costs(buckets: readonly Schemas['Bucket'][]): number[] {
  return buckets.map((bucket) => bucket.cost_usd ?? 0)
}

/** The remainder is called like its row if it is only what has no value of the group. */
function restName(rows: readonly Row[], named: number): string {
  const without = rows.find((row) => row.key === null)
  const others = rows.filter((row) => row.key !== null && (row.cost_usd ?? 0) > 0).length - named
  return without && others === 0 ? without.name : OTHER
}

/** Appends the remainder of the total. */
function appendRemainder(named: readonly { name: string; color: string; values: number[] }[], totals: readonly number[], name: string): TimeSeries[] {
  const rest = totals.map((value, at) => Math.max(0, value - named.reduce((sum, one) => sum + (one.values[at] ?? 0), 0)))
  return rest.some((value) => value > 1e-12) ? [...named, { name, color: OTHER_COLOR, values: rest }] : [...named]
}

/** The organization budget whose period equals the interval, as a limit line. */
function limits(budgets: readonly Schemas['Budget'][], interval: Range['interval']) {
  const period = interval === 'day' ? 'daily' : interval === 'week' ? 'weekly' : null
  return budgets
    .filter((budget) => budget.scope === 'org' && budget.period === period)
    .flatMap((budget) => [
      { name: 'soft limit', value: budget.soft_limit_usd, color: 'var(--warn)' },
      { name: 'hard limit', value: budget.hard_limit_usd, color: 'var(--err)' },
    ])
    .flatMap(({ name, value, color }) => (value === null ? [] : [{ name, value, color }]))
}
