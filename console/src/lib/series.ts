/** Buckets of usage as the series of a chart. */
import type { components } from '@/api/schema'
import { colorsOf, OTHER_COLOR } from '@/charts/colors'
import type { TimeSeries } from '@/charts/TimeChart'

type Bucket = components['schemas']['Bucket']
type GroupSums = components['schemas']['GroupSums']

export const OTHER = 'other'

export function startsOf(buckets: readonly Bucket[]): number[] {
  return buckets.map((bucket) => Date.parse(bucket.start))
}

/** The groups that weigh most as series of their own, biggest at the bottom, and the rest together. */
export function topSeries(buckets: readonly Bucket[], weigh: (sums: GroupSums) => number | null, most = 5): TimeSeries[] {
  const totals = new Map<string, number>()
  for (const group of buckets.flatMap((bucket) => bucket.groups ?? [])) {
    const name = group.key ?? 'unknown'
    totals.set(name, (totals.get(name) ?? 0) + (weigh(group) ?? 0))
  }
  const ranked = [...totals].filter(([, total]) => total > 0).sort((a, b) => b[1] - a[1]).map(([name]) => name)
  const named = ranked.length > most + 1 ? ranked.slice(0, most) : ranked.slice(0, most + 1)
  const colors = colorsOf(named.slice(0, most))
  const series = named.map((name, at) => ({
    name,
    color: colors[at] ?? OTHER_COLOR,
    values: buckets.map((bucket) => sumOf(bucket, (key) => key === name, weigh)),
  }))
  if (ranked.length <= named.length) return series
  return [...series, { name: OTHER, color: OTHER_COLOR, values: buckets.map((bucket) => sumOf(bucket, (key) => !named.includes(key), weigh)) }]
}

/** Answers by what they mean: ok at the bottom, refused, failed on top. */
export function statusSeries(buckets: readonly Bucket[]): TimeSeries[] {
  const classes = [
    { name: 'ok', color: 'var(--series-1)', holds: (status: number) => status < 400 },
    { name: '4xx', color: 'var(--warn)', holds: (status: number) => status >= 400 && status < 500 },
    { name: '5xx', color: 'var(--err)', holds: (status: number) => status >= 500 },
  ]
  return classes.map(({ name, color, holds }) => ({
    name,
    color,
    values: buckets.map((bucket) => sumOf(bucket, (key) => holds(Number(key)), (sums) => sums.requests)),
  }))
}

function sumOf(bucket: Bucket, wanted: (key: string) => boolean, weigh: (sums: GroupSums) => number | null): number {
  return (bucket.groups ?? []).filter((group) => wanted(group.key ?? 'unknown')).reduce((sum, group) => sum + (weigh(group) ?? 0), 0)
}
