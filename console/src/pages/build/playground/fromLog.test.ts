import { expect, test } from 'vitest'
import { lostParams, lostParts, paramsOf, parseAnswer, parseMessages, toolsOf } from './fromLog'

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
