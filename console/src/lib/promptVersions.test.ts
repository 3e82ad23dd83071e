import { expect, test } from 'vitest'
import { atVersion, labelProblem, labelsOf, versionOptions } from './promptVersions'

test('labels come before versions, and the current choice is always there', () => {
  const options = versionOptions(3, { staging: 3, production: 2 }, null)
  expect(options.map((option) => option.label)).toEqual(['Latest (v3)', 'production (v2)', 'staging (v3)', 'v3', 'v2', 'v1'])
  expect(versionOptions(1, {}, 'removed').at(-1)).toEqual({ value: 'removed', label: 'removed' })
  expect(versionOptions(0, {}, 7).at(-1)).toEqual({ value: '7', label: 'v7' })
  expect(versionOptions(100_000, {}, null)).toHaveLength(101)
})

test('labels of a version', () => {
  expect(labelsOf(2, { production: 2, staging: 3, canary: 2 })).toEqual(['canary', 'production'])
  expect(atVersion('production')).toBe('@production')
  expect(atVersion(null)).toBe('')
})

test('names that could be taken for a version are no labels', () => {
  expect(labelProblem('production')).toBeNull()
  for (const wrong of ['', 'latest', 'v2', 'Production', '2nd', 'a b']) expect(labelProblem(wrong)).not.toBeNull()
})
