import { expect, test } from 'vitest'
import { diffCases } from './caseDiff'

const one = (id: string, input: string) => ({ id, input, expected: null, metadata: {} })

test('cases are told apart by their ids', () => {
  const diff = diffCases([one('a', '1'), one('b', '2'), one('c', '3')], [one('a', '1'), one('b', 'two'), one('d', '4')])
  expect([diff.added.map((c) => c.id), diff.removed.map((c) => c.id), diff.changed.map((c) => c.after.input), diff.same]).toEqual([['d'], ['c'], ['two'], 1])
})
