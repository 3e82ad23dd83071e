import { expect, test } from 'vitest'
import { instant, integer, oneOf, parseSearch, stringifySearch, text } from './search'

test('search parameters round-trip as plain text', () => {
  const search = { log: 371382241935872, q: 'déjà vu & more', user: '42' }
  expect(stringifySearch(search)).toBe('?log=371382241935872&q=d%C3%A9j%C3%A0+vu+%26+more&user=42')
  expect(parseSearch(stringifySearch(search))).toEqual({ log: '371382241935872', q: 'déjà vu & more', user: '42' })
})

test('empty values are omitted', () => {
  expect(stringifySearch({ a: undefined, b: null, c: '' })).toBe('')
})

test('parsers drop invalid values', () => {
  expect(integer('371382241935872')).toBe(371382241935872)
  expect(integer('1.5')).toBeUndefined()
  expect(integer('')).toBeUndefined()
  expect(text('')).toBeUndefined()
  expect(oneOf('b', ['a', 'b'] as const)).toBe('b')
  expect(oneOf('c', ['a', 'b'] as const)).toBeUndefined()
  expect(instant('2026-11-15')).toBe('2026-11-15T00:00:00.000Z')
  expect(instant('yesterday')).toBeUndefined()
})
