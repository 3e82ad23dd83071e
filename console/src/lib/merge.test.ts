import { expect, test } from 'vitest'
import { mergeNewestFirst } from './merge'

const rows = (...ids: number[]) => ids.map((id) => ({ id }))

test('rows are sorted and duplicates are dropped', () => {
  expect(mergeNewestFirst(rows(9, 7, 4), rows(8, 7, 5, 1))).toEqual(rows(9, 8, 7, 5, 4, 1))
})

test('an empty list returns the other one', () => {
  const list = rows(2, 1)
  expect(mergeNewestFirst([], list)).toBe(list)
  expect(mergeNewestFirst(list, [])).toBe(list)
})

test('a hundred thousand rows are merged within a frame or so', () => {
  const many = rows(...Array.from({ length: 100_000 }, (_, at) => 200_000 - at))
  const began = performance.now()
  expect(mergeNewestFirst(rows(200_001), many)).toHaveLength(100_001)
  expect(performance.now() - began).toBeLessThan(100)
})
