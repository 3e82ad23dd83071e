import { expect, it } from 'vitest'
import { polygonVertex, linePath, niceTicks, tickTimeStyle, timeTicks } from './scale'

it('covers the largest value with round steps', () => {
  expect(niceTicks(100)).toEqual([0, 25, 50, 75, 100])
  expect(niceTicks(7)).toEqual([0, 2, 4, 6, 8])
  expect(niceTicks(0.0042)).toEqual([0, 0.002, 0.004, 0.006])
  expect(niceTicks(0)).toEqual([0, 1])
  for (let max = 0.001; max < 1e7; max *= 1.37) {
    const ticks = niceTicks(max)
    expect(ticks.at(-1)).toBeGreaterThanOrEqual(max * 0.999)
    expect(ticks.length).toBeLessThanOrEqual(6)
  }
})

it('has whole steps for counts', () => {
  expect(niceTicks(1, 4, true)).toEqual([0, 1])
  expect(niceTicks(3, 4, true)).toEqual([0, 1, 2, 3])
  expect(niceTicks(9, 4, true)).toEqual([0, 5, 10])
  for (let max = 1; max < 1e6; max = Math.ceil(max * 1.7)) expect(niceTicks(max, 4, true).every(Number.isInteger)).toBe(true)
})

it('labels round times only, and not more than fit', () => {
  const start = Date.parse('2026-11-15T00:00:00Z')
  const hours = Array.from({ length: 24 }, (_, at) => start + at * 3.6e6)
  expect(timeTicks(hours, 6)).toEqual([0, 6, 12, 18])
  expect(timeTicks(hours, 6, 3.6e6)).toEqual([5, 11, 17, 23])
  expect(tickTimeStyle(hours)).toBe('minute')
  const weeks = Array.from({ length: 13 }, (_, at) => start + at * 6.048e8)
  expect(timeTicks(weeks, 4).length).toBeLessThanOrEqual(5)
  expect(timeTicks(weeks, 4).length).toBeGreaterThan(0)
  expect(tickTimeStyle(weeks)).toBe('day')
  expect(timeTicks([], 6)).toEqual([])
})

it('leaves gaps where there is no value', () => {
  const path = linePath([1, 2, null, 3], (x) => x, (y) => y)
  expect(path).toBe('M0.0 1.0L1.0 2.0M3.0 3.0h0.01')
})

it('puts the first corner on top', () => {
  const { x, y } = polygonVertex(0, 5, 10)
  expect([Math.round(x), Math.round(y)]).toEqual([0, -10])
})
