import { expect, test } from 'vitest'
import { addColumn, DEFAULT_SETUP, NO_PARAMS, restoreSetup, writtenVariables, validateSetup, requestInput, parseParams, compareTarget, formatParams } from './setup'

const PROMPT = { namespace: 'a', slug: 'b', version: null }

test('parameters are parsed as numbers, and errors are reported', () => {
  expect(parseParams({ ...NO_PARAMS, temperature: '0.5', top_p: ' ', more: '{"seed": 1}' }).value).toEqual({ temperature: 0.5, seed: 1 })
  expect(parseParams({ ...NO_PARAMS, temperature: 'warm' }).problem).toBe('temperature must be a number')
  expect(parseParams({ ...NO_PARAMS, more: '[1]' }).problem).toBe('Extra parameters must be a JSON object')
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
  expect(requestInput({ ...DEFAULT_SETUP, prompt: PROMPT, values: { x: 'y' } })).toEqual({ prompt: { ...PROMPT, variables: { x: 'y' } } })
})

test('a new column is like the last one', () => {
  expect(addColumn([{ id: 4, provider: 'p', model: 'm', params: null }]).at(-1)).toEqual({ id: 5, provider: 'p', model: 'm', params: null })
})

test('tools and a schema are sent, and displayed unchanged', () => {
  const params = { tools: [{ type: 'function', function: { name: 'x' } }], response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' } } } }
  expect(parseParams(formatParams(params)).value).toEqual(params)
  expect(parseParams(formatParams({ response_format: { type: 'json_object' } })).value).toEqual({ response_format: { type: 'json_object' } })
  expect(parseParams({ ...NO_PARAMS, tools: '{}' }).problem).toBe('Tools must be a JSON array')
  expect(parseParams({ ...NO_PARAMS, schema: '{' }).problem).toBe('The JSON schema must be a JSON object')
})

test('a prompt goes before the messages, a changed one as its text, and a column may have its own', () => {
  const setup = { ...DEFAULT_SETUP, prompt: PROMPT, messages: [{ role: 'user' as const, content: 'Ask {{name}} about {{this}}' }], values: { name: 'Ada' } }
  const messages = [{ role: 'user', content: 'Ask Ada about {{this}}' }]
  expect(requestInput(setup)).toEqual({ prompt: { ...PROMPT, variables: { name: 'Ada' } }, messages })
  expect(requestInput({ ...setup, draft: 'Greet {{name}}' })).toEqual({ messages: [{ role: 'system', content: 'Greet Ada' }, ...messages] })
  expect(requestInput({ ...setup, draft: 'Greet' }, { prompt: { ...PROMPT, version: 2 } }).prompt?.version).toBe(2)
  expect(writtenVariables({ ...setup, draft: '{{tone}} {{name}}' })).toEqual(['tone', 'name', 'this'])
})

test('images and tool messages keep their form', () => {
  const url = 'data:image/png;base64,AA=='
  const setup = { ...DEFAULT_SETUP, messages: [{ role: 'user' as const, content: 'see', images: [url] }, { role: 'tool' as const, content: 'sunny', toolCallId: 'c1' }] }
  expect(requestInput(setup).messages).toEqual([
    { role: 'user', content: [{ type: 'text', text: 'see' }, { type: 'image_url', image_url: { url } }] },
    { role: 'tool', content: 'sunny', tool_call_id: 'c1' },
  ])
})

test('a setup of an earlier version is restored', () => {
  const kept = { messages: [{ role: 'user' as const, content: 'hi' }], prompt: { ...PROMPT, values: { x: 'y' } }, params: { temperature: '1' } as never }
  const setup = restoreSetup(kept)
  expect(setup.values).toEqual({ x: 'y' })
  expect(setup.prompt).toEqual(PROMPT)
  expect(setup.params).toEqual({ ...NO_PARAMS, temperature: '1' })
  expect(setup.columns).toHaveLength(1)
})
