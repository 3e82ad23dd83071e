import { expect, test } from 'vitest'
import { splitFields } from './facetFields'

test.each([
  ['', []],
  ['model:gpt-4o -source:api,replay', []],
  ['user:ada', ['status', 'prompt']],
  ['status:429', ['user', 'prompt']],
  ['-prompt:a/b', ['status', 'user', 'prompt']],
])('fields that sums cannot answer are asked for apart: %s', (query, moved) => {
  const [summed, counted] = splitFields(query)
  expect(counted.filter((field) => !['error', 'level', 'source', 'tool', 'cache'].includes(field))).toEqual(moved)
  expect(summed).not.toContain('cache')
  expect([...summed, ...counted].length).toBe(13)
  expect(Math.max(summed.length, counted.length)).toBeLessThanOrEqual(12)
})
