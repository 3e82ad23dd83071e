import { expect, test } from 'vitest'
import { overall, shares } from './rubric'

test('scores are weighed, and a missing one counts as nothing', () => {
  expect(overall({ clarity: 1, safety: 3 }, { clarity: { score: 1 }, safety: { score: 0.5 } })).toBe(0.625)
  expect(overall({ clarity: 1, safety: 1 }, { clarity: { score: 1 } })).toBe(0.5)
  expect(overall({}, {})).toBe(0)
})

test('shares make a whole', () => {
  expect(shares({ a: 1, b: 3 })).toEqual({ a: 0.25, b: 0.75 })
  expect(shares({ a: 0 })).toEqual({ a: 0 })
})
