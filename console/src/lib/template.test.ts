import { expect, test } from 'vitest'
import { renderHere, templateLines, templatePieces, variablesOf } from './template'

test('variables are found once each, in their order', () => {
  expect(variablesOf('{{b}} {{ a }} {{b}} \\{{c}} {{d.e-f}}')).toEqual(['b', 'a', 'd.e-f'])
})

test('braces that are no variable are marked', () => {
  expect(templatePieces('a {{1x}} {{open').filter((piece) => piece.kind === 'bad').map((piece) => piece.text)).toEqual(['{{1x}}', '{{'])
})

test('values are put in, escapes become braces, and values are not read again', () => {
  expect(renderHere('Hi {{name}}, \\{{x}} {{missing}}', { name: '{{missing}}' })).toBe('Hi {{missing}}, {{x}} {{missing}}')
})

test('lines keep their pieces', () => {
  expect(templateLines('a {{x}}\n\nb').map((line) => line.map((piece) => piece.kind))).toEqual([['text', 'variable'], [], ['text']])
})
