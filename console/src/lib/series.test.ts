import { expect, test } from 'vitest'
import type { components } from '@/api/schema'
import { OTHER, statusSeries, topSeries } from './series'

type Bucket = components['schemas']['Bucket']
const bucket = (groups: Record<string, number>): Bucket =>
  ({ start: '2026-11-15T00:00:00Z', groups: Object.entries(groups).map(([key, requests]) => ({ key, requests, errors: Number(key) >= 400 ? requests : 0 })) }) as unknown as Bucket

test('the largest groups are series and the rest is summed as other', () => {
  const series = topSeries([bucket({ a: 9, b: 8, c: 7, d: 6, e: 5, f: 2, g: 1 }), bucket({ a: 1, g: 4 })], (sums) => sums.requests)
  expect(series.map((one) => one.name)).toEqual(['a', 'b', 'c', 'd', 'e', OTHER])
  expect(series.at(-1)?.values).toEqual([3, 4])
})

test('a single remaining group is not summed as other, and empty groups are skipped', () => {
  expect(topSeries([bucket({ a: 3, b: 2, c: 0 })], (sums) => sums.requests).map((one) => one.name)).toEqual(['a', 'b'])
})

test('colours of named series are all different', () => {
  const colors = topSeries([bucket({ a: 5, b: 4, c: 3, d: 2, e: 1 })], (sums) => sums.requests).map((one) => one.color)
  expect(new Set(colors).size).toBe(5)
})

test('errors are the topmost series', () => {
  const series = statusSeries([bucket({ 200: 5, 404: 2, 502: 1, 499: 1 })])
  expect(series.map((one) => [one.name, one.values[0]])).toEqual([['ok', 5], ['4xx', 3], ['5xx', 1]])
})

test('a failure inside a 200 is an error, as in the summary', () => {
  const withFailure = { start: '2026-11-15T00:00:00Z', groups: [{ key: '200', requests: 7, errors: 2 }, { key: '502', requests: 1, errors: 1 }] } as unknown as Bucket
  const series = statusSeries([withFailure])
  expect(series.map((one) => [one.name, one.values[0]])).toEqual([['ok', 5], ['failed 2xx', 2], ['4xx', 0], ['5xx', 1]])
})
