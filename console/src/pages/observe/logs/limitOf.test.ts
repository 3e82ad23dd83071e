import { expect, test } from 'vitest'
import { limitOf } from './limitOf'

const KEYS = [{ id: 'k1', name: 'Checkout' }]

test.each([
  ['', {}],
  ['user:ada model:gpt-4o*,o3 status:error', { user: 'ada', model: 'gpt-4o*, o3' }],
  ['key:checkout', { key: 'k1' }],
  ['key:k1 -user:ada', { key: 'k1' }],
  ['key:unknown user:ada,grace', {}],
  ['user:* slow', {}],
])('%s', (query, link) => {
  expect(limitOf(query, KEYS)).toEqual({ new: '1', ...link })
})
