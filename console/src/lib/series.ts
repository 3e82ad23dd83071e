/** Converts usage buckets to chart series. */
import type { components } from '@/api/schema'
import { colorsOf, ERROR_COLOR, OTHER_COLOR } from '@/charts/colors'
import type { TimeSeries } from '@/charts/TimeChart'

type Bucket = components['schemas']['Bucket']
type GroupSums = components['schemas']['GroupSums']

export const OTHER = 'other'

export function bucketStarts(buckets: readonly Bucket[]): number[] {
  return buckets.map((bucket) => Date.parse(bucket.start))
}

/** The largest groups as series, largest first, and the remaining groups summed as `other`. */
export function topSeries(buckets: readonly Bucket[], measure: (sums: GroupSums) => number | null, maxSeries = 5): TimeSeries[] {
  const totals = new Map<string, number>()
  for (const group of buckets.flatMap((bucket) => bucket.groups ?? [])) {
    const name = group.key ?? 'unknown'
    totals.set(name, (totals.get(name) ?? 0) + (measure(group) ?? 0))
  }
  const ranked = [...totals].filter(([, total]) => total > 0).sort((a, b) => b[1] - a[1]).map(([name]) => name)
  const named = ranked.length > maxSeries + 1 ? ranked.slice(0, maxSeries) : ranked.slice(0, maxSeries + 1)
  const colors = colorsOf(named.slice(0, maxSeries))
  const series = named.map((name, at) => ({
    name,
    color: colors[at] ?? OTHER_COLOR,
    values: buckets.map((bucket) => sumGroups(bucket, (key) => key === name, measure)),
  }))
  if (ranked.length <= named.length) return series
  return [...series, { name: OTHER, color: OTHER_COLOR, values: buckets.map((bucket) => sumGroups(bucket, (key) => !named.includes(key), measure)) }]
}

/** Responses by status class, ok at the bottom of the stack. A failure inside a 200 is an error, as in all other sums. */
export function statusSeries(buckets: readonly Bucket[]): TimeSeries[] {
  const isOk = (key: string): boolean => !(Number(key) >= 400)
  const series = (name: string, color: string, matches: (key: string) => boolean, measure: (sums: GroupSums) => number = (sums) => sums.errors): TimeSeries => ({ name, color, values: buckets.map((bucket) => sumGroups(bucket, matches, measure)) })
  const broken = series('failed 2xx', 'var(--series-5)', isOk)
  return [
    series('ok', 'var(--series-1)', isOk, (sums) => sums.requests - sums.errors),
    ...(broken.values.some(Boolean) ? [broken] : []),
    series('4xx', 'var(--warn)', (key) => Number(key) >= 400 && Number(key) < 500),
    series('5xx', ERROR_COLOR, (key) => Number(key) >= 500),
  ]
}

function sumGroups(bucket: Bucket, matches: (key: string) => boolean, measure: (sums: GroupSums) => number | null): number {
  return (bucket.groups ?? []).filter((group) => matches(group.key ?? 'unknown')).reduce((sum, group) => sum + (measure(group) ?? 0), 0)
}
