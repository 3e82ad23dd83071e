import { expect, test } from 'vitest'
import type { Message } from './conversation'
import { conversationTurns } from './conversationTurns'

const message = (role: Message['role'], words: string): Message => ({ role, parts: [{ kind: 'text', text: words }] })
const response = (words: string) => ({ messages: [message('assistant', words)], finishReason: 'stop', error: null })

test('each turn has only the new messages of its request', () => {
  const first = [message('system', 'Be kind'), message('user', 'Hello')]
  const second = [...first, message('assistant', 'Hi!'), message('user', 'And now?')]
  const turns = conversationTurns([
    { request: first, response: response('Hi!') },
    { request: second, response: response('Now you.') },
  ])
  expect(turns.map((turn) => turn.newMessages)).toEqual([first, [message('user', 'And now?')]])
  expect(turns[1]?.responseMessages).toEqual([message('assistant', 'Now you.')])
})

test('a request with a different history is shown completely', () => {
  const turns = conversationTurns([
    { request: [message('user', 'One')], response: response('1') },
    { request: [message('user', 'Two')], response: response('2') },
  ])
  expect(turns[1]?.newMessages).toEqual([message('user', 'Two')])
})

test('a request without a stored body yields an empty turn', () => {
  expect(conversationTurns([{ request: null, response: null }])).toEqual([{ newMessages: [], responseMessages: [] }])
})
