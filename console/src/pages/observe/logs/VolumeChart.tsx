import { keepPreviousData } from '@tanstack/react-query'
import { api } from '@/api/client'
import { TimeChart } from '@/charts/TimeChart'
import { compact, integer, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { INTERVAL_MS, type Range } from '@/lib/range'

const HEIGHT = 84
const POLL_MS = 15_000

interface VolumeChartProps {
  /** The query of the list: the chart counts the same rows. */
  query: string
  range: Range
  live: boolean
  onRange(from: string, to: string): void
}

/** Requests over time that match the query, with failed ones on top. Dragging or a click selects a time range. */
export function VolumeChart({ query, range, live, onRange }: VolumeChartProps) {
  const { zone } = usePrefs()
  const { from, to, interval } = range
  const series = api.useQuery('get', '/api/v1/usage/timeseries', { params: { query: { query: query || undefined, from, to, interval } } }, { placeholderData: keepPreviousData, retry: false, meta: { quiet: true }, ...(live && { refetchInterval: POLL_MS }) })
  const buckets = series.data?.buckets ?? []
  const total = buckets.reduce((sum, bucket) => sum + bucket.requests, 0)
  const errors = buckets.reduce((sum, bucket) => sum + bucket.errors, 0)
  const iso = (at: number) => new Date(at).toISOString()
  return (
    <section aria-label="Volume" className="shrink-0 border-y border-line bg-surface px-4 pt-1">
      <TimeChart
        strip
        whole
        summary={
          <span className="flex flex-wrap gap-x-3">
            <span className="text-fg">{plural(total, 'request')}</span>
            <span className={errors > 0 ? 'text-err' : undefined}>{plural(errors, 'error')}</span>
            {series.data?.partial && <span>Counted since {time(series.data.scanned_to, zone)}; choose a shorter range for all</span>}
          </span>
        }
        title="Requests over time"
        kind="bars"
        height={HEIGHT}
        zone={zone}
        step={INTERVAL_MS[interval]}
        starts={buckets.map((bucket) => Date.parse(bucket.start))}
        series={[
          { name: 'ok', color: 'var(--series-6)', values: buckets.map((bucket) => bucket.requests - bucket.errors) },
          { name: 'failed', color: 'var(--err)', values: buckets.map((bucket) => bucket.errors) },
        ]}
        format={(value) => (value < 10_000 ? integer(value) : compact(value))}
        onPick={(begin, end) => onRange(iso(begin), iso(end))}
        onRange={(begin, end) => onRange(iso(begin), iso(end))}
      />
    </section>
  )
}
