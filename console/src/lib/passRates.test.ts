import { expect, test } from 'vitest'
import { passRatePoints } from './passRates'

const run = (id: number, passed: number, model: string | null, status = 'completed') => ({ id, status, passed, failed: 4 - passed, created_at: `2026-11-${10 + id}T00:00:00Z`, target: model === null ? null : { model }, dataset_id: 'd', dataset_version: 1 })

test('runs become points, oldest first, with a line for each target', () => {
  const { series, count } = passRatePoints([run(3, 4, 'b'), run(2, 1, 'a'), run(1, 2, 'a'), run(0, 0, 'a', 'cancelled')], 3, () => 'Questions')
  expect(count).toBe(3)
  expect(series.map((one) => [one.name, one.points.map((point) => [point.id, point.at, point.rate])])).toEqual([
    ['a · Questions v1', [[1, 0, 0.5], [2, 1, 0.25]]],
    ['b · Questions v1', [[3, 2, 1]]],
  ])
})

test('many targets share the last line, and runs without verdicts are left out', () => {
  const runs = Array.from({ length: 9 }, (_, at) => run(at, 1, `m${at}`))
  const { series } = passRatePoints([{ ...run(99, 0, 'x'), failed: 0 }, ...runs], 100, () => undefined)
  expect(series).toHaveLength(5)
  expect(passRatePoints(runs, 2, () => undefined).series.flatMap((one) => one.points.map((point) => point.id))).toEqual([1, 0])
  expect(series.at(-1)?.name).toBe('others')
  expect(series.at(-1)?.points).toHaveLength(5)
})
