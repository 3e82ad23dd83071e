import { expect, test } from 'vitest'
import { renderPreview, templateLines, templatePieces, variablesOf } from './template'

test('variables are unique and in order', () => {
  expect(variablesOf('{{b}} {{ a }} {{b}} \\{{c}} {{d.e-f}}')).toEqual(['b', 'a', 'd.e-f'])
})

test('braces without a valid variable name are marked', () => {
  expect(templatePieces('a {{1x}} {{open').filter((piece) => piece.kind === 'invalid').map((piece) => piece.text)).toEqual(['{{1x}}', '{{'])
})

test('values are substituted, escapes become braces, and values are not parsed again', () => {
  expect(renderPreview('Hi {{name}}, \\{{x}} {{missing}}', { name: '{{missing}}' })).toBe('Hi {{missing}}, {{x}} {{missing}}')
})

test('lines keep their pieces', () => {
  expect(templateLines('a {{x}}\n\nb').map((line) => line.map((piece) => piece.kind))).toEqual([['text', 'variable'], [], ['text']])
})
