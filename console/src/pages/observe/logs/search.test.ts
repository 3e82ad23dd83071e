import { expect, test } from 'vitest'
import { effectiveQuery, nextSort, orderOf, readLogsSearch } from './search'

const read = (search: Record<string, unknown>) => JSON.parse(JSON.stringify(readLogsSearch(search))) as unknown

test('search parameters are parsed, and invalid values are dropped', () => {
  expect(read({ query: 'status:error', sort: 'latency:asc', own: 'show', log: '371382241935872', tab: 'timing' })).toEqual({ query: 'status:error', sort: 'latency:asc', own: 'show', log: 371382241935872, tab: 'timing' })
  expect(read({ query: '', sort: 'speed', own: 'x', log: 'y', tab: 'z' })).toEqual({})
})

test('parameters of earlier versions become terms', () => {
  expect(read({ status: '5xx', user: 'maria lopez', key_id: 'k1', session_id: 's', q: 'two words' })).toEqual({ query: 'status:5xx key:k1 user:"maria lopez" session:s two words' })
})

test('own calls are left out unless they are asked for', () => {
  expect(effectiveQuery({})).toBe('-source:api,replay')
  expect(effectiveQuery({ query: 'model:x' })).toBe('model:x -source:api,replay')
  expect(effectiveQuery({ query: 'model:x', own: 'show' })).toBe('model:x')
  expect(effectiveQuery({ query: 'source:api,proxy' })).toBe('source:api,proxy')
})

test('a header sorts by the highest, then the lowest, then by time again', () => {
  expect(nextSort(orderOf(undefined), 'latency')).toBe('latency')
  expect(nextSort(orderOf('latency'), 'latency')).toBe('latency:asc')
  expect(nextSort(orderOf('latency:asc'), 'latency')).toBeUndefined()
  expect(nextSort(orderOf(undefined), 'time')).toBe('time:asc')
  expect(nextSort(orderOf('cost'), 'time')).toBeUndefined()
})
