import { expect, test } from 'vitest'
import { diffCases } from './caseDiff'

const one = (id: string, input: string) => ({ id, input, expected: null, metadata: {} })

test('cases are matched by id', () => {
  const diff = diffCases([one('a', '1'), one('b', '2'), one('c', '3')], [one('a', '1'), one('b', 'two'), one('d', '4')])
  expect([diff.added.map((c) => c.id), diff.removed.map((c) => c.id), diff.changed.map((c) => c.after.input), diff.unchanged]).toEqual([['d'], ['c'], ['two'], 1])
})
