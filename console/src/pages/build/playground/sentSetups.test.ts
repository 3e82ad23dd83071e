import { expect, test } from 'vitest'
import { addSent, columnsById, type SentSetup } from './sentSetups'
import { DEFAULT_SETUP } from './setup'

const columns = [1, 2, 3].map((id) => ({ id, provider: 'sandbox', model: 'sandbox-small', params: null }))
const sent = (runs: Record<number, string>): SentSetup => ({ setup: { ...DEFAULT_SETUP, columns }, runs })

test('the setup of a start is kept once, newest first, with the columns of each comparison', () => {
  const first = addSent([], sent({ 1: 'a' }))
  const both = addSent(first, sent({ 1: 'a', 2: 'b', 3: 'a' }))
  expect(both).toHaveLength(1)
  expect(columnsById(both[0] ?? sent({}))).toEqual([['a', [1, 3]], ['b', [2]]])
  expect(addSent(both, sent({ 1: 'c' })).map((one) => one.runs[1])).toEqual(['c', 'a'])
})

test('a large setup and one without runs are not kept', () => {
  expect(addSent([], sent({}))).toEqual([])
  expect(addSent([], { ...sent({ 1: 'a' }), setup: { ...DEFAULT_SETUP, columns, messages: [{ role: 'user', content: 'x'.repeat(50_000) }] } })).toEqual([])
})
