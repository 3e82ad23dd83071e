import { expect, test } from 'vitest'
import { isOne, leftOutText, MAX_MATCHING, rowsText, selectionOf, usedCount } from './chosenRows'

const matching = (count: number | null) => ({ query: 'status:error', from: '2026-01-01T00:00:00Z', count })

test('given rows are named by their ids', () => {
  expect(selectionOf({ ids: [3, 1] })).toEqual({ log_ids: [3, 1] })
  expect([isOne({ ids: [3] }), isOne({ ids: [3, 1] }), isOne(matching(1))]).toEqual([true, false, false])
  expect(rowsText({ ids: [3, 1] })).toBe('2 requests')
})

test('matching rows are selected by the query, the latest of them if there are many', () => {
  expect(selectionOf({ ...matching(12), to: '2026-02-01T00:00:00Z' })).toEqual({ query: 'status:error', from: '2026-01-01T00:00:00Z', to: '2026-02-01T00:00:00Z', limit: 12 })
  expect(selectionOf(matching(5000))).toEqual({ query: 'status:error', from: '2026-01-01T00:00:00Z', limit: MAX_MATCHING })
  expect([usedCount(matching(null)), usedCount(matching(0))]).toEqual([MAX_MATCHING, 1])
  expect([rowsText(matching(12)), rowsText(matching(5000)), rowsText(matching(null))]).toEqual(['12 matching requests', 'the latest 1,000 matching requests', 'the latest 1,000 matching requests'])
})

test('what was left out is said', () => {
  expect(leftOutText({}, 'test cases')).toBe('')
  expect(leftOutText({ skipped: 0, partial: false, scanned_to: null }, 'test cases')).toBe('')
  expect(leftOutText({ skipped: 2, partial: true, scanned_to: '2026-01-02T00:00:00Z' }, 'test cases')).toBe('2 requests cannot be test cases. Only requests since 2026-01-02T00:00:00Z were looked at; narrow the query.')
})
