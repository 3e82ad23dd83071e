import { expect, test } from 'vitest'
import { weightedScore, normalizeWeights } from './rubric'

test('the score is the weighted mean, and a missing score counts as 0', () => {
  expect(weightedScore({ clarity: 1, safety: 3 }, { clarity: { score: 1 }, safety: { score: 0.5 } })).toBe(0.625)
  expect(weightedScore({ clarity: 1, safety: 1 }, { clarity: { score: 1 } })).toBe(0.5)
  expect(weightedScore({}, {})).toBe(0)
})

test('normalized weights add up to 1', () => {
  expect(normalizeWeights({ a: 1, b: 3 })).toEqual({ a: 0.25, b: 0.75 })
  expect(normalizeWeights({ a: 0 })).toEqual({ a: 0 })
})
