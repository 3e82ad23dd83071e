import { expect, test } from 'vitest'
import { addColumn, DEFAULT_SETUP, parseMessages, NO_PARAMS, validateSetup, requestInput, parseParams, compareTarget, formatParams } from './setup'

test('parameters are parsed as numbers, and errors are reported', () => {
  expect(parseParams({ temperature: '0.5', max_tokens: '', top_p: ' ', more: '{"seed": 1}' }).value).toEqual({ temperature: 0.5, seed: 1 })
  expect(parseParams({ ...NO_PARAMS, temperature: 'warm' }).problem).toBe('temperature is no number')
  expect(parseParams({ ...NO_PARAMS, more: '[1]' }).problem).toBe('The other settings are no JSON object')
})

test('sent parameters are displayed unchanged', () => {
  const params = { temperature: 0, seed: 7 }
  expect(parseParams(formatParams(params)).value).toEqual(params)
})

test('a column overrides the shared parameters', () => {
  const setup = { ...DEFAULT_SETUP, params: { ...NO_PARAMS, temperature: '1', max_tokens: '5' } }
  const [column] = setup.columns
  expect(column && compareTarget(setup, { ...column, params: { ...NO_PARAMS, temperature: '0' } }).params).toEqual({ temperature: 0, max_tokens: 5 })
})

test('an empty input is rejected', () => {
  expect(validateSetup(DEFAULT_SETUP)).toBe('Write a message first')
  expect(validateSetup({ ...DEFAULT_SETUP, messages: [{ role: 'user', content: 'hi' }] })).toBeNull()
  expect(requestInput({ ...DEFAULT_SETUP, prompt: { namespace: 'a', slug: 'b', version: null, values: { x: 'y' } } })).toEqual({ prompt: { namespace: 'a', slug: 'b', version: null, variables: { x: 'y' } } })
})

test('a new column is like the last one', () => {
  expect(addColumn([{ id: 4, provider: 'p', model: 'm', params: null }]).at(-1)).toEqual({ id: 5, provider: 'p', model: 'm', params: null })
})

test('a logged request becomes messages', () => {
  expect(parseMessages({ messages: [{ role: 'developer', content: 's' }, { role: 'user', content: [{ type: 'text', text: 'u' }] }] })).toEqual([
    { role: 'system', content: 's' },
    { role: 'user', content: 'u' },
  ])
  expect(parseMessages(null)).toBeNull()
})
