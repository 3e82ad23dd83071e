import { expect, test } from 'vitest'
import { addColumn, FIRST_SETUP, messagesOf, NO_PARAMS, problemOf, questionOf, readParams, targetOf, writeParams } from './setup'

test('settings are read as numbers, and mistakes are told', () => {
  expect(readParams({ temperature: '0.5', max_tokens: '', top_p: ' ', more: '{"seed": 1}' }).value).toEqual({ temperature: 0.5, seed: 1 })
  expect(readParams({ ...NO_PARAMS, temperature: 'warm' }).problem).toBe('temperature is no number')
  expect(readParams({ ...NO_PARAMS, more: '[1]' }).problem).toBe('The other settings are no JSON object')
})

test('settings that were sent are shown as they were', () => {
  const params = { temperature: 0, seed: 7 }
  expect(readParams(writeParams(params)).value).toEqual(params)
})

test('a column overrides what all share', () => {
  const setup = { ...FIRST_SETUP, params: { ...NO_PARAMS, temperature: '1', max_tokens: '5' } }
  const [column] = setup.columns
  expect(column && targetOf(setup, { ...column, params: { ...NO_PARAMS, temperature: '0' } }).params).toEqual({ temperature: 0, max_tokens: 5 })
})

test('nothing is sent without words', () => {
  expect(problemOf(FIRST_SETUP)).toBe('Write a message first')
  expect(problemOf({ ...FIRST_SETUP, messages: [{ role: 'user', content: 'hi' }] })).toBeNull()
  expect(questionOf({ ...FIRST_SETUP, prompt: { namespace: 'a', slug: 'b', version: null, values: { x: 'y' } } })).toEqual({ prompt: { namespace: 'a', slug: 'b', version: null, variables: { x: 'y' } } })
})

test('a new column is like the last one', () => {
  expect(addColumn([{ id: 4, provider: 'p', model: 'm', params: null }]).at(-1)).toEqual({ id: 5, provider: 'p', model: 'm', params: null })
})

test('a logged request becomes messages', () => {
  expect(messagesOf({ messages: [{ role: 'developer', content: 's' }, { role: 'user', content: [{ type: 'text', text: 'u' }] }] })).toEqual([
    { role: 'system', content: 's' },
    { role: 'user', content: 'u' },
  ])
  expect(messagesOf(null)).toBeNull()
})
