import { expect, test } from 'vitest'
import { completionAt, hasField, joinTerms, parseTerms, quoteValue, searchedWords, setValue, term, valueState, withoutField } from './query'

test('terms are found with their fields, values and places', () => {
  const text = 'status:error -user:"maria lopez",ada  "exact words" word'
  expect(parseTerms(text).map((one) => [text.slice(one.start, one.end), one.negated, one.field, one.values])).toEqual([
    ['status:error', false, 'status', ['error']],
    ['-user:"maria lopez",ada', true, 'user', ['maria lopez', 'ada']],
    ['"exact words"', false, null, ['exact words']],
    ['word', false, null, ['word']],
  ])
})

test.each(['"', '-', ':', 'a:"b', 'a:,', '--', '""', 'a"b:c', '\\', 'x:"\\'])('%s does not stop the reader', (text) => {
  expect(parseTerms(text).at(-1)?.end).toBe(text.length)
})

test('values with special characters are quoted', () => {
  expect(['gpt-4o', 'two words', 'a"b', 'a*', '>2', '1..2', ''].map(quoteValue)).toEqual(['gpt-4o', '"two words"', '"a\\"b"', '"a*"', '">2"', '"1..2"', '""'])
  expect(parseTerms(term('user', 'a\\"b c'))[0]?.values).toEqual(['a\\"b c'])
})

test('a value is added to the term of its field, excluded and removed', () => {
  expect(setValue('latency:>2s', 'model', 'a b', 'in')).toBe('latency:>2s model:"a b"')
  expect(setValue('model:gpt-4o* word', 'model', 'x', 'in')).toBe('model:gpt-4o*,x word')
  expect(setValue('model:x,y word', 'model', 'x', null)).toBe('model:y word')
  expect(setValue('model:x word', 'model', 'x', null)).toBe('word')
  expect(setValue('model:x word', 'model', 'x', 'out')).toBe('word -model:x')
  expect(setValue('-model:x', 'model', 'y', 'out')).toBe('-model:x,y')
  expect(setValue('model:x', 'model', 'x', 'in')).toBe('model:x')
  expect([valueState('model:x,y', 'model', 'y'), valueState('-model:x', 'model', 'x'), valueState('', 'model', 'x')]).toEqual(['in', 'out', null])
})

test('fields are removed, and words are known for marking', () => {
  expect(withoutField('model:x -model:y a', 'model')).toBe('a')
  expect(hasField('-source:api', 'source')).toBe(true)
  expect(searchedWords('invoice "was charged" -zip model:x')).toEqual(['invoice', 'was', 'charged'])
  expect(joinTerms(' a ', undefined, '', 'b')).toBe('a b')
})

test.each([
  ['', 0, null, '', 0, 0],
  ['mod', 3, null, 'mod', 0, 3],
  ['-mod', 4, null, 'mod', 1, 4],
  ['a:b mod', 7, null, 'mod', 4, 7],
  ['model:gp', 8, 'model', 'gp', 6, 8],
  ['model:a,gp x', 10, 'model', 'gp', 8, 10],
  ['user:"maria l', 13, 'user', 'maria l', 5, 13],
  ['model:gp ', 9, null, '', 9, 9],
])('%s at %i is completed', (text, caret, field, prefix, from, to) => {
  expect(completionAt(text, caret)).toEqual({ field, prefix, from, to })
})

test('nothing is completed inside a phrase', () => {
  expect(completionAt('"exact wo', 9)).toBeNull()
})
