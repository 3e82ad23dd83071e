import { expect, test } from 'vitest'
import { definitionText } from './toolText'

test('a definition has the description first and everything else but the name below it', () => {
  const text = definitionText({ name: 'add', description: 'Adds.', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } })
  expect(text.startsWith('Adds.\n\n{')).toBe(true)
  expect(text).toContain('"inputSchema"')
  expect(text).toContain('"readOnlyHint": true')
  expect(text).not.toContain('"add"')
})

test('something that is no definition has no text', () => {
  expect(definitionText(null)).toBe('')
  expect(definitionText('text')).toBe('')
})
