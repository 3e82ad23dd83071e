import { expect, test } from 'vitest'
import { quotaLines } from './quotas'

test('quotas have names, amounts and a state', () => {
  const lines = quotaLines({
    body_bytes_per_day: { limit: 10 * 1024 ** 3, used: 1024 ** 2 },
    keys: { limit: 10, used: 8 },
    new_thing: { limit: null, used: 3 },
    prompts: { limit: 2, used: 2 },
  })
  expect(lines.map(({ label, used, limit, state }) => [label, used, limit, state])).toEqual([
    ['Keys', '8', '10', 'near'],
    ['Prompts', '2', '2', 'full'],
    ['Stored bodies today', '1 MiB', '10 GiB', 'ok'],
    ['new thing', '3', null, 'ok'],
  ])
})
