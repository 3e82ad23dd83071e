import { expect, test } from 'vitest'
import { addColumn, addTool, callsOf, compareTarget, continuationProblem, continued, DEFAULT_SETUP, evalTargets, evaluationProblem, formatParams, NO_PARAMS, notEvaluated, openCalls, parseParams, requestInput, restoreSetup, toolNames, validateSetup, writtenVariables, type Message, type ToolCall } from './setup'

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

const call = (id: string, name = 'weather'): ToolCall => ({ id, type: 'function', function: { name, arguments: '{}' } })

test('a schema keeps its name and strict, and a bare one gets a name', () => {
  const strict = { response_format: { type: 'json_schema', json_schema: { name: 'city', strict: true, schema: { type: 'object' } } } }
  expect(parseParams(formatParams(strict)).value).toEqual(strict)
  expect(formatParams({ response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' } } } }).schema).toBe('{\n  "type": "object"\n}')
  // A schema that describes a name and a schema is still a schema.
  const described = { type: 'object', properties: { name: {}, schema: {} } }
  expect(parseParams({ ...NO_PARAMS, schema: JSON.stringify(described) }).value).toEqual({ response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: described } } })
})

test('tools are named and added to', () => {
  expect(toolNames('')).toBeNull()
  expect(toolNames('[{"type": "function", "function": {"name": "a"}}, {}]')).toEqual(['a', 'unnamed'])
  expect(toolNames(addTool(addTool('')))).toEqual(['new_tool', 'new_tool'])
  expect(addTool('{')).toBe('{')
})

test('the conversation goes on after an answer: with the results of its calls, or with a message', () => {
  const question: Message = { role: 'user', content: 'Weather?' }
  const calls = [call('a'), call('b')]
  expect(continued([question, { role: 'user', content: ' ' }], '', calls)).toEqual([
    question,
    { role: 'assistant', content: '', toolCalls: calls },
    { role: 'tool', content: '', toolCallId: 'a' },
    { role: 'tool', content: '', toolCallId: 'b' },
  ])
  expect(continuationProblem([question], '', [])).toBe('The answer is empty')
  expect(continuationProblem([{ role: 'user', content: '' }], 'Sunny', [])).toMatch(/Write a message first/)
  expect(continuationProblem([question], '', calls)).toBeNull()
  expect(continuationProblem(continued([question], '', calls), '', calls)).toBe('The answer is already one of the messages')
  expect(continuationProblem(continued([question], '', calls), '', [call('c')])).toBeNull()
  expect(continued([question], 'Sunny', [])).toEqual([question, { role: 'assistant', content: 'Sunny' }, { role: 'user', content: '' }])
})

test('calls are sent with what the provider added, an empty result is sent, and only assistants call tools', () => {
  const signed = { ...call('a'), extra_content: { signature: 's' } }
  const messages: Message[] = [{ role: 'user', content: 'q', toolCalls: [call('x')] }, { role: 'assistant', content: '', toolCalls: [signed] }, { role: 'tool', content: '', toolCallId: 'a' }, { role: 'system', content: 's', images: ['data:image/png;base64,AA=='] }]
  expect(requestInput({ ...DEFAULT_SETUP, messages }).messages).toEqual([
    { role: 'user', content: 'q' },
    { role: 'assistant', content: null, tool_calls: [signed] },
    { role: 'tool', content: '', tool_call_id: 'a' },
    { role: 'system', content: 's' },
  ])
})

test('a call without a name and a result without a call are refused before they are sent', () => {
  const setup = (...messages: Message[]) => ({ ...DEFAULT_SETUP, messages: [{ role: 'user' as const, content: 'q' }, ...messages] })
  expect(validateSetup(setup({ role: 'assistant', content: '', toolCalls: [call('a', '')] }))).toBe('Name the tool that message 2 calls')
  expect(validateSetup(setup({ role: 'tool', content: 'sunny' }))).toBe('Choose the call that message 2 answers')
  expect(validateSetup(setup({ role: 'assistant', content: '', toolCalls: [call('a')] }, { role: 'tool', content: '', toolCallId: 'a' }))).toBeNull()
})

test('a result can answer the calls before it that have none', () => {
  const messages: Message[] = [{ role: 'assistant', content: '', toolCalls: [call('a'), call('b')] }, { role: 'tool', content: '', toolCallId: 'a' }, { role: 'tool', content: '' }, { role: 'assistant', content: '', toolCalls: [call('c')] }]
  expect(openCalls(messages, 1).map((one) => one.id)).toEqual(['a', 'b'])
  expect(openCalls(messages, 2).map((one) => one.id)).toEqual(['b'])
})

test('calls of answers get an id if they have none, and others are left out', () => {
  expect(callsOf(undefined)).toEqual([])
  expect(callsOf([{ type: 'custom', custom: {} }, { id: 'a', function: { name: 'f', arguments: '{}' } }, { function: { name: 'g', arguments: '' } }]).map((one) => [one.id, one.function.name])).toEqual([['a', 'f'], ['call_2', 'g']])
})

test('an evaluation has the model, the prompt, the parameters and the values of each column', () => {
  const setup = { ...DEFAULT_SETUP, prompt: PROMPT, values: { name: 'Ada', empty: '', input: 'x' }, params: { ...NO_PARAMS, temperature: '0' } }
  const [first] = setup.columns
  const columns = first ? [first, { ...first, id: 2, prompt: { ...PROMPT, version: 2 }, params: { ...NO_PARAMS, temperature: '1' } }] : []
  const target = { provider: 'sandbox', model: 'sandbox-small', variables: { name: 'Ada' } }
  expect(evalTargets({ ...setup, columns })).toEqual([
    { ...target, prompt: PROMPT, params: { temperature: 0 } },
    { ...target, prompt: { ...PROMPT, version: 2 }, params: { temperature: 1 } },
  ])
  expect(evaluationProblem(setup)).toBeNull()
  expect(evaluationProblem({ ...setup, draft: 'x' })).toBe('Save or discard the changed text of the prompt first')
  expect(evaluationProblem({ ...setup, draft: 'x', columns: columns.slice(1) })).toBeNull()
  expect(evaluationProblem({ ...setup, params: { ...NO_PARAMS, tools: '{' } })).toBe('Tools must be a JSON array')
  expect(notEvaluated({ messages: [{ role: 'user', content: 'q' }] })).toBeNull()
  expect(notEvaluated({ messages: [{ role: 'system', content: 's' }] })).toMatch(/Save it as a prompt/)
})
