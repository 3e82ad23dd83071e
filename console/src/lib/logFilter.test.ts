import { expect, test } from 'vitest'
import { matchesFilter } from './logFilter'

type Row = Parameters<typeof matchesFilter>[0]
const row = { status: 502, provider: 'openai', model: 'gpt-4o', level: 'error', source: 'proxy', key_id: 'k', session_id: 's', user: 'u' } as Row

test('a filter without conditions matches every row', () => {
  expect(matchesFilter(row, {})).toBe(true)
})

test.each([
  [{ status: '5xx' }, true],
  [{ status: '4xx' }, false],
  [{ status: '502' }, true],
  [{ status: '500' }, false],
  [{ provider: 'openai', model: 'gpt-4o' }, true],
  [{ provider: 'openai', model: 'gpt-4' }, false],
  [{ user: 'v' }, false],
  [{ session_id: 's', key_id: 'k', level: 'error', source: 'proxy' } as const, true],
  [{ source: 'api' } as const, false],
])('%j is judged as the server judges it', (filter, expected) => {
  expect(matchesFilter(row, filter)).toBe(expected)
})
