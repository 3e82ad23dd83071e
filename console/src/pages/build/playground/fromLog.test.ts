import { expect, test } from 'vitest'
import { lostParts, paramsOf, parseMessages, toolsOf } from './fromLog'

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
