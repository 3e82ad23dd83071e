import { expect, test } from 'vitest'
import { boundsOf, draftOf } from './memberKeys'

test('what is stored comes back as it was', () => {
  for (const bounds of [null, { scopes: ['model:gpt-4o', 'provider:openai'], budget_usd: 2.5, max: 3 }, { scopes: ['proxy'], budget_usd: null, max: null }]) {
    expect(boundsOf(draftOf(bounds))).toEqual(bounds)
  }
})

test('a switch that is off removes the bounds, and empty fields have no limit', () => {
  expect(boundsOf({ isOn: false, scopes: 'proxy', budget: '1', max: '1' })).toBeNull()
  expect(boundsOf({ isOn: true, scopes: ' model:a\n\nmodel:b ', budget: ' ', max: '' })).toEqual({ scopes: ['model:a', 'model:b'], budget_usd: null, max: null })
})
