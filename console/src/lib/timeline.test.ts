import { expect, test } from 'vitest'
import { compressGaps, instantAt, positionOf } from './timeline'

const HOUR = 3_600_000

test('an hour-long gap does not squeeze the activity', () => {
  const line = compressGaps([{ start: 0, end: 1000 }, { start: HOUR, end: HOUR + 1000 }])
  expect(line.map((piece) => piece.isGap)).toEqual([false, true, false])
  expect(positionOf(1000, line)).toBeCloseTo(0.48)
  expect(positionOf(HOUR, line)).toBeCloseTo(0.52)
})

test('short gaps keep their proportion', () => {
  const line = compressGaps([{ start: 0, end: 1000 }, { start: 1200, end: 2000 }])
  expect(line).toEqual([{ from: 0, to: 2000, left: 0, right: 1, isGap: false }])
})

test('many gaps leave room for the activity', () => {
  const line = compressGaps(Array.from({ length: 100 }, (_, at) => ({ start: at * HOUR, end: at * HOUR + 10 })))
  expect(line.at(-1)?.right).toBeCloseTo(1)
  expect(line.filter((piece) => piece.isGap).reduce((sum, piece) => sum + piece.right - piece.left, 0)).toBeCloseTo(0.4)
})

test('positions and instants round-trip', () => {
  const line = compressGaps([{ start: 0, end: 1000 }, { start: HOUR, end: HOUR + 3000 }])
  for (const at of [0, 500, 1000, HOUR + 10, HOUR + 3000]) expect(instantAt(positionOf(at, line), line)).toBeCloseTo(at, 3)
})

test('an empty list has no segments', () => {
  expect(compressGaps([])).toEqual([])
  expect(positionOf(5, [])).toBe(0)
})
