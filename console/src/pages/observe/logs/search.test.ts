import { expect, test } from 'vitest'
import { filterOf, readLogsSearch } from './search'

test('search parameters are parsed, and invalid values are dropped', () => {
  const search = readLogsSearch({ status: '5xx', level: 'loud', source: 'api', log: '371382241935872', tab: 'timing', user: '42', q: '' })
  expect(JSON.parse(JSON.stringify(search))).toEqual({ status: '5xx', source: 'api', log: 371382241935872, tab: 'timing', user: '42' })
})

test.each(['6xx', '20', '2000', 'abc'])('%s is no status', (status) => {
  expect(readLogsSearch({ status }).status).toBeUndefined()
})

test('the open drawer and the search text are not part of the client-side filter', () => {
  expect(Object.keys(filterOf({ q: 'x', log: 1, tab: 'raw', provider: 'openai' }))).not.toContain('q')
  expect(filterOf({ provider: 'openai' }).provider).toBe('openai')
})
