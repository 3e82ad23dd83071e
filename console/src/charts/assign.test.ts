import { expect, it } from 'vitest'
import { assignColors, growingColors, namedGroups } from './assign'
import { OTHER_COLOR } from './colors'

it('has one assignment for a view: five colours of their own, one for the rest', () => {
  const color = assignColors(['a', 'f', 'a', null, 'k', 'p', 'u', 'z'])
  expect(new Set(['a', 'f', 'k', 'p', 'u'].map(color)).size).toBe(5)
  expect([color('z'), color('unknown'), color(null)]).toEqual([OTHER_COLOR, OTHER_COLOR, OTHER_COLOR])
})

it('keeps the colours of a list that grows, and gives none twice', () => {
  const color = growingColors()
  const first = ['a', 'f', 'k'].map(color)
  const later = ['p', 'u', 'z'].map(color)
  expect(['a', 'f', 'k'].map(color)).toEqual(first)
  expect(new Set([...first, ...later]).size).toBe(6)
  expect(later.at(-1)).toBe(OTHER_COLOR)
})

it('names the most expensive groups, and never what has no value', () => {
  const rows = [{ key: 'small', cost_usd: 1 }, { key: null, cost_usd: 9 }, { key: 'large', cost_usd: 5 }, { key: 'free', cost_usd: 0 }, { key: 'unpriced', cost_usd: null }]
  expect(namedGroups(rows).map((row) => row.key)).toEqual(['large', 'small'])
})
