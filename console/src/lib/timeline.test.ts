import { expect, test } from 'vitest'
import { compress, instantAt, placeOf } from './timeline'

const HOUR = 3_600_000

test('an hour of silence does not flatten what is around it', () => {
  const line = compress([{ start: 0, end: 1000 }, { start: HOUR, end: HOUR + 1000 }])
  expect(line.map((piece) => piece.gap)).toEqual([false, true, false])
  expect(placeOf(1000, line)).toBeCloseTo(0.48)
  expect(placeOf(HOUR, line)).toBeCloseTo(0.52)
})

test('short gaps keep their proportion', () => {
  const line = compress([{ start: 0, end: 1000 }, { start: 1200, end: 2000 }])
  expect(line).toEqual([{ from: 0, to: 2000, left: 0, right: 1, gap: false }])
})

test('many gaps leave room for what happened', () => {
  const line = compress(Array.from({ length: 100 }, (_, at) => ({ start: at * HOUR, end: at * HOUR + 10 })))
  expect(line.at(-1)?.right).toBeCloseTo(1)
  expect(line.filter((piece) => piece.gap).reduce((sum, piece) => sum + piece.right - piece.left, 0)).toBeCloseTo(0.4)
})

test('a place and its instant belong together', () => {
  const line = compress([{ start: 0, end: 1000 }, { start: HOUR, end: HOUR + 3000 }])
  for (const at of [0, 500, 1000, HOUR + 10, HOUR + 3000]) expect(instantAt(placeOf(at, line), line)).toBeCloseTo(at, 3)
})

test('nothing is nothing', () => {
  expect(compress([])).toEqual([])
  expect(placeOf(5, [])).toBe(0)
})
