import { expect, test } from 'vitest'
import { firstOfDay } from './days'

const rows = [
  { id: 50, created_at: '2026-11-16T08:00:00Z' },
  { id: 40, created_at: '2026-11-16T00:00:00Z' },
  { id: 30, created_at: '2026-11-15T23:59:59Z' },
  { id: 20, created_at: '2026-11-15T01:00:00Z' },
  { id: 10, created_at: '2026-11-13T01:00:00Z' },
]

test('the first row below another day', () => {
  const isFirst = firstOfDay(rows, false, 'utc')
  expect(rows.filter(isFirst).map((row) => row.id)).toEqual([30, 10])
})

test('in ascending order too', () => {
  const ascending = rows.toReversed()
  expect(ascending.filter(firstOfDay(ascending, true, 'utc')).map((row) => row.id)).toEqual([20, 40])
})

test('a row that is not in the list is none', () => {
  expect(firstOfDay(rows, false, 'utc')({ id: 35, created_at: '2026-11-15T00:00:00Z' })).toBe(false)
})
