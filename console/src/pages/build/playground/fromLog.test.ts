import { expect, test } from 'vitest'
import { hasLegacyFunctions, lostParams, lostParts, paramsOf, parseAnswer, parseMessages, toolsOf } from './fromLog'

const WEATHER = { name: 'weather', description: 'The weather', parameters: { type: 'object' } }

test('a logged request becomes messages', () => {
  expect(parseMessages({ messages: [{ role: 'developer', content: 's' }, { role: 'user', content: [{ type: 'text', text: 'u' }] }] })).toEqual([
    { role: 'system', content: 's' },
    { role: 'user', content: 'u' },
  ])
  expect(parseMessages(null)).toBeNull()
})

test('tool calls, tool results and images of chat completions are kept', () => {
  const call = { id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"city":"Rome"}' } }
  const body = {
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'see' }, { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }] },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'c1', content: 'sunny' },
    ],
    tools: [{ type: 'function', function: WEATHER }],
  }
  expect(parseMessages(body)).toEqual([
    { role: 'user', content: 'see', images: ['data:image/png;base64,AA=='] },
    { role: 'assistant', content: '', toolCalls: [call] },
    { role: 'tool', content: 'sunny', toolCallId: 'c1' },
  ])
  expect(lostParts(body)).toBe(0)
})

test('tools of other formats become those of chat completions', () => {
  const expected = [{ type: 'function', function: WEATHER }]
  expect(toolsOf({ tools: [{ name: 'weather', description: 'The weather', input_schema: { type: 'object' } }] }).tools).toEqual(expected)
  expect(toolsOf({ tools: [{ type: 'function', ...WEATHER }] }).tools).toEqual(expected)
  expect(toolsOf({ tools: [{ type: 'function', ...WEATHER, strict: true }] }).tools).toEqual([{ type: 'function', function: { ...WEATHER, strict: true } }])
  expect(toolsOf({ tools: [{ functionDeclarations: [WEATHER] }] }).tools).toEqual(expected)
  expect(toolsOf({ tools: [{ type: 'web_search_20250305', name: 'web_search' }] })).toEqual({ tools: [], lost: 1 })
  expect(paramsOf({ temperature: 0, tools: expected, tool_choice: { type: 'any' } })).toEqual({ temperature: 0, tools: expected, tool_choice: 'required' })
  expect(paramsOf({ tool_choice: 'auto' })).toEqual({})
})

test('calls and results without ids are matched by their order', () => {
  const body = {
    contents: [
      { role: 'model', parts: [{ functionCall: { name: 'a', args: {} } }, { functionCall: { name: 'b', args: { x: 1 } } }] },
      { role: 'user', parts: [{ functionResponse: { name: 'a', response: { ok: true } } }, { functionResponse: { name: 'b', response: { ok: false } } }] },
    ],
  }
  const messages = parseMessages(body) ?? []
  expect(messages[0]?.toolCalls?.map((call) => [call.id, call.function.arguments])).toEqual([['call_1', '{}'], ['call_2', '{"x":1}']])
  expect(messages.slice(1).map((message) => [message.toolCallId, message.content])).toEqual([['call_1', '{"ok":true}'], ['call_2', '{"ok":false}']])
})

const LEGACY = {
  model: 'm',
  temperature: 0,
  messages: [
    { role: 'user', content: 'Rome or Oslo?' },
    { role: 'assistant', content: null, function_call: { name: 'weather', arguments: '{"city":"Rome"}' } },
    { role: 'function', name: 'weather', content: 'sunny' },
    { role: 'assistant', content: 'Now Oslo.', function_call: { name: 'weather', arguments: '{"city":"Oslo"}' } },
    { role: 'function', name: 'weather', content: 'rain' },
  ],
  functions: [WEATHER],
  function_call: { name: 'weather' },
}

test('functions, the older form of tools, become tools with calls and results', () => {
  const call = (id: string, city: string) => ({ id, type: 'function', function: { name: 'weather', arguments: `{"city":"${city}"}` } })
  expect(parseMessages(LEGACY)).toEqual([
    { role: 'user', content: 'Rome or Oslo?' },
    { role: 'assistant', content: '', toolCalls: [call('call_1', 'Rome')] },
    { role: 'tool', content: 'sunny', toolCallId: 'call_1' },
    { role: 'assistant', content: 'Now Oslo.', toolCalls: [call('call_2', 'Oslo')] },
    { role: 'tool', content: 'rain', toolCallId: 'call_2' },
  ])
  expect(parseMessages(LEGACY)).toEqual(parseMessages(LEGACY))
  expect(paramsOf(LEGACY)).toEqual({ temperature: 0, tools: [{ type: 'function', function: WEATHER }], tool_choice: { type: 'function', function: { name: 'weather' } } })
  expect(paramsOf({ ...LEGACY, function_call: 'none' })['tool_choice']).toBe('none')
  expect(lostParts(LEGACY)).toBe(0)
})

test('a request with functions is recognized, so that the page can say what it converted', () => {
  expect(hasLegacyFunctions(LEGACY)).toBe(true)
  expect(hasLegacyFunctions({ messages: LEGACY.messages })).toBe(true)
  expect(hasLegacyFunctions({ messages: [{ role: 'function', name: 'weather', content: 'sunny' }] })).toBe(true)
  expect(hasLegacyFunctions({ messages: [{ role: 'user', content: 'u' }], tools: [{ type: 'function', function: WEATHER }] })).toBe(false)
  expect(hasLegacyFunctions({ input: [{ type: 'function_call', call_id: 'c', name: 'weather', arguments: '{}' }] })).toBe(false)
  expect(hasLegacyFunctions(null)).toBe(false)
})

test('ids for calls without one differ from the ids of other calls, and a call without a result stays open', () => {
  const messages = [
    { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'a', arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'call_1', content: '1' },
    { role: 'assistant', content: null, function_call: { name: 'b', arguments: '{}' } },
    { role: 'user', content: 'Never mind' },
    { role: 'assistant', content: null, function_call: { name: 'b', arguments: '{}' } },
    { role: 'function', name: 'b', content: '2' },
    { role: 'function', name: 'b', content: 'nobody asked' },
  ]
  const parsed = parseMessages({ messages }) ?? []
  expect(parsed.flatMap((message) => message.toolCalls?.map((call) => call.id) ?? [])).toEqual(['call_1', 'call_2', 'call_3'])
  expect(parsed.flatMap((message) => message.toolCallId ?? [])).toEqual(['call_1', 'call_3', 'call_4'])
})

test('a logged answer with a function call goes on like one with a tool call', () => {
  const answer = { choices: [{ message: { role: 'assistant', content: null, function_call: { name: 'weather', arguments: '{"city":"Bonn"}' } }, finish_reason: 'function_call' }] }
  const expected = { role: 'assistant', content: '', toolCalls: [{ id: 'call_3', type: 'function', function: { name: 'weather', arguments: '{"city":"Bonn"}' } }] }
  expect(parseAnswer(answer, parseMessages(LEGACY) ?? [])).toEqual(expected)
  const pieces = [{ name: 'weather', arguments: '' }, { arguments: '{"city":' }, { arguments: '"Bonn"}' }]
  const stream = pieces.map((piece) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { function_call: piece } }] })}\n\n`).join('')
  expect(parseAnswer(`${stream}data: [DONE]\n\n`, parseMessages(LEGACY) ?? [])).toEqual(expected)
})

test('what cannot be sent again is counted', () => {
  expect(lostParts({ messages: [{ role: 'user', content: [{ type: 'file', file: { filename: 'a.pdf' } }] }] })).toBe(1)
})

test('all parameters of chat completions are kept', () => {
  const settings = { max_completion_tokens: 50, stop: ['END'], seed: 7, reasoning_effort: 'low', logit_bias: { '50256': -100 }, temperature: 0 }
  const body = { model: 'm', stream: true, stream_options: { include_usage: true }, messages: [{ role: 'user', content: 'u' }], ...settings, user: null }
  expect(paramsOf(body)).toEqual(settings)
  expect(lostParts(body)).toBe(0)
})

test('parameters of other formats become those of chat completions, and the others are counted', () => {
  const anthropic = { model: 'm', system: 's', messages: [{ role: 'user', content: 'u' }], max_tokens: 9, stop_sequences: ['END'], top_k: 3, thinking: { type: 'enabled', budget_tokens: 1024 } }
  expect(paramsOf(anthropic)).toEqual({ max_tokens: 9, stop: ['END'], top_k: 3 })
  expect(lostParams(anthropic)).toEqual(['thinking'])
  const format = { type: 'json_schema', schema: { type: 'object' } }
  expect(paramsOf({ ...anthropic, output_config: { effort: 'low', format } })).toMatchObject({ reasoning_effort: 'low', response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' } } } })
  expect(lostParams({ ...anthropic, output_config: { effort: 'low', format: { type: 'grammar' } } })).toEqual(['thinking', 'output_config'])
  const gemini = {
    contents: [{ role: 'user', parts: [{ text: 'u' }] }],
    generationConfig: { temperature: 0.5, maxOutputTokens: 9, topP: 1, stopSequences: ['END'], responseMimeType: 'application/json', thinkingConfig: { thinkingBudget: 0 } },
    safetySettings: [],
  }
  expect(paramsOf(gemini)).toEqual({ temperature: 0.5, max_tokens: 9, top_p: 1, stop: ['END'], response_format: { type: 'json_object' } })
  expect(lostParts(gemini)).toBe(2)
  const responses = { input: 'u', max_output_tokens: 9, reasoning: { effort: 'low' }, text: { format: { type: 'json_schema', name: 'n', schema: {} } }, previous_response_id: 'r' }
  expect(paramsOf(responses)).toEqual({ max_completion_tokens: 9, reasoning_effort: 'low', response_format: { type: 'json_schema', json_schema: { name: 'n', schema: {} } } })
  expect(lostParams(responses)).toEqual(['previous_response_id'])
  const tools = [{ toolSpec: { name: 'weather', inputSchema: { json: { type: 'object' } } } }]
  const bedrock = { messages: [{ role: 'user', content: [{ text: 'u' }] }], inferenceConfig: { maxTokens: 9, stopSequences: ['END'] }, toolConfig: { tools, toolChoice: { any: {} } } }
  expect(paramsOf(bedrock)).toMatchObject({ max_tokens: 9, stop: ['END'], tool_choice: 'required', tools: [{ type: 'function', function: { name: 'weather', parameters: { type: 'object' } } }] })
  expect(lostParts(bedrock)).toBe(0)
})

test('a logged answer has its text and its tool calls, in every format', () => {
  const call = { id: 'c1', type: 'function' as const, function: { name: 'weather', arguments: '{"city":"Rome"}' } }
  const expected = { role: 'assistant', content: 'Let me see', toolCalls: [call] }
  expect(parseAnswer({ choices: [{ message: { role: 'assistant', content: 'Let me see', tool_calls: [call] } }, { message: { content: 'other' } }] }, [])).toEqual(expected)
  expect(parseAnswer({ type: 'message', role: 'assistant', content: [{ type: 'text', text: 'Let me see' }, { type: 'tool_use', id: 'c1', name: 'weather', input: { city: 'Rome' } }] }, [])).toEqual(expected)
  expect(parseAnswer({ candidates: [{ content: { parts: [{ functionCall: { name: 'weather', args: { city: 'Rome' } } }] } }] }, [{ role: 'assistant', content: '', toolCalls: [call] }])).toEqual({ role: 'assistant', content: '', toolCalls: [{ ...call, id: 'call_2' }] })
  expect(parseAnswer({ error: { message: 'no' } }, [])).toBeNull()
  expect(parseAnswer(null, [])).toBeNull()
})
