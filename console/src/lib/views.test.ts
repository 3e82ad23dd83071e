import { expect, test } from 'vitest'
import { contentOf, isShowing, searchOf, viewSearchOf, type ViewSearch } from './views'

test('only the parameters of a view are taken from an address', () => {
  expect(viewSearchOf({ query: 'a', sort: undefined, log: 5, tab: 'raw' } as { query: string })).toEqual({ query: 'a' })
})

test('an address becomes a view and back', () => {
  const addresses: ViewSearch[] = [{}, { query: 'status:error', sort: 'latency' }, { by: 'user', sort: 'requests' }, { range: '7d' }, { query: 'a', from: '2026-01-01T00:00:00.000Z', to: '2026-01-02T00:00:00.000Z' }]
  for (const search of addresses) {
    expect(searchOf(contentOf(search))).toEqual(search)
  }
  expect(contentOf({})).toEqual({ query: '', sort: null, by: null, range: null })
  expect(contentOf({ from: '2026-01-01T00:00:00.000Z', to: '2026-01-02T00:00:00.000Z', range: '7d' }).range).toBe('2026-01-01T00:00:00.000Z..2026-01-02T00:00:00.000Z')
})

test('own calls are part of the query', () => {
  expect(contentOf({ query: 'status:error', own: 'show' }).query).toBe('status:error source:*')
  expect(contentOf({ own: 'show' }).query).toBe('source:*')
  expect(contentOf({ query: 'source:proxy', own: 'show' }).query).toBe('source:proxy')
})

test('a view without a range is shown in every range, one with a range only in its own', () => {
  const errors = { query: 'status:error' }
  expect(isShowing({ query: 'status:error', range: '7d' }, errors)).toBe(true)
  expect(isShowing({ range: '7d', sort: 'cost', query: 'a' }, { query: 'a', sort: 'cost', range: '7d' })).toBe(true)
  expect(isShowing({ query: 'status:error' }, { ...errors, range: '7d' })).toBe(false)
  expect(isShowing({ query: 'status:error', sort: 'cost' }, errors)).toBe(false)
  expect(isShowing({ query: 'status:error', by: 'user' }, errors)).toBe(true)
  expect(isShowing({ query: 'status:error', by: 'user' }, { ...errors, by: 'user' })).toBe(true)
  expect(isShowing({ query: 'status:error' }, { ...errors, by: 'user' })).toBe(false)
  expect(isShowing({ query: 'source:*' }, { own: 'show' })).toBe(true)
})
