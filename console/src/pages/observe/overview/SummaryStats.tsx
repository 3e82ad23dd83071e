import { api, type Schemas } from '@/api/client'
import { pollingOptions } from '@/api/query'
import { compact, cost, duration, money, percent, plural } from '@/lib/format'
import { previousRange, type Range } from '@/lib/range'
import { ErrorPanel, SkeletonCards, Stat } from '@/ui'

/** Key metrics of the range, compared with the previous range. */
export function SummaryStats({ range, query }: { range: Range; query: string | undefined }) {
  const { from, to } = range
  const before = previousRange(range)
  const now = api.useQuery('get', '/api/v1/usage/summary', { params: { query: { from, to, query } } }, pollingOptions())
  const previousQuery = api.useQuery('get', '/api/v1/usage/summary', { params: { query: { ...before, query } } }, { staleTime: 60_000, placeholderData: (before) => before })
  if (now.isError) return <ErrorPanel error={now.error} what="the totals" onRetry={() => void now.refetch()} />
  if (!now.data) return <SkeletonCards cards={7} className="h-[92px]" />
  const sums = now.data
  const previous = previousQuery.data
  const share = (part: number, whole: number) => (whole === 0 ? null : part / whole)
  const errors = share(sums.errors, sums.requests)
  return (
    <div className="grid grid-cols-2 gap-3 sm:grid-cols-3 xl:grid-cols-7">
      <Stat label="Requests" value={compact(sums.requests)} change={relativeChange(sums, previous, (one) => one.requests)} />
      <Stat label="Error rate" value={percent(errors)} more="bad" change={relativeChange(sums, previous, (one) => share(one.errors, one.requests))} note={sums.errors > 0 ? plural(sums.errors, 'error') : undefined} />
      <Stat label="Cost" value={money(sums.cost_usd)} more="bad" change={relativeChange(sums, previous, (one) => one.cost_usd)} note={sums.unpriced > 0 ? `${compact(sums.unpriced)} ${sums.unpriced === 1 ? 'request has' : 'requests have'} no price` : undefined} />
      <Stat label="Latency, p95" value={duration(sums.p95_ms)} more="bad" change={relativeChange(sums, previous, (one) => one.p95_ms)} note={<Percentiles p50={sums.p50_ms} p99={sums.p99_ms} />} />
      <Stat label="Tokens" value={compact(sums.total_tokens)} change={relativeChange(sums, previous, (one) => one.total_tokens)} />
      <Stat label="Saved by caching" value={cost(sums.cache_saved_usd)} more="good" change={relativeChange(sums, previous, (one) => one.cache_saved_usd)} note={sums.prompt_cache_pauses.length > 0 ? `paused for ${plural(sums.prompt_cache_pauses.length, 'key')}` : undefined} />
      <Stat label="Cache hit rate" value={percent(share(sums.cache_hits, sums.requests))} more="good" change={relativeChange(sums, previous, (one) => share(one.cache_hits, one.requests))} />
    </div>
  )
}

/** A line breaks between the two, never inside a value. */
function Percentiles({ p50, p99 }: { p50: number | null; p99?: number | null }) {
  return (
    <span>
      <span className="whitespace-nowrap">
        p50 {duration(p50)}
        {p99 != null && ','}
      </span>{' '}
      {p99 != null && <span className="whitespace-nowrap">p99 {duration(p99)}</span>}
    </span>
  )
}

/** Relative change; null if the previous value is 0. */
function relativeChange(now: Schemas['Summary'], previous: Schemas['Summary'] | undefined, pick: (sums: Schemas['Summary']) => number | null): number | null {
  const value = pick(now)
  const before = previous ? pick(previous) : null
  return value === null || !before ? null : value / before - 1
}
