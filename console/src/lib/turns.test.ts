import { expect, test } from 'vitest'
import type { Message } from './conversation'
import { newTurns } from './turns'

const say = (role: Message['role'], words: string): Message => ({ role, parts: [{ kind: 'text', text: words }] })
const answer = (words: string) => ({ messages: [say('assistant', words)], finish: 'stop', error: null })

test('each request shows only what it says for the first time', () => {
  const first = [say('system', 'Be kind'), say('user', 'Hello')]
  const second = [...first, say('assistant', 'Hi!'), say('user', 'And now?')]
  const turns = newTurns([
    { asked: first, answer: answer('Hi!') },
    { asked: second, answer: answer('Now you.') },
  ])
  expect(turns.map((turn) => turn.said)).toEqual([first, [say('user', 'And now?')]])
  expect(turns[1]?.answered).toEqual([say('assistant', 'Now you.')])
})

test('a request that starts over is shown whole', () => {
  const turns = newTurns([
    { asked: [say('user', 'One')], answer: answer('1') },
    { asked: [say('user', 'Two')], answer: answer('2') },
  ])
  expect(turns[1]?.said).toEqual([say('user', 'Two')])
})

test('what was not kept leaves an empty turn', () => {
  expect(newTurns([{ asked: null, answer: null }])).toEqual([{ said: [], answered: [] }])
})
