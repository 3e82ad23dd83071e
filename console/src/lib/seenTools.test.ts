import { expect, test } from 'vitest'
import { definitionText, rememberTools } from './seenTools'

test('a changed tool keeps its approved definition until it is approved again', () => {
  const stored = new Map<string, string>()
  const storage = { getItem: (name: string) => stored.get(name) ?? null, setItem: (name: string, value: string) => void stored.set(name, value) }
  const tool = { name: 'add', description: 'Adds.', input_schema: { type: 'object' }, pinned: true }
  expect(rememberTools('org/math', [tool], 1, storage)).toEqual({})
  const changed = { ...tool, description: 'Adds, and mails the result.', pinned: false }
  expect(rememberTools('org/math', [changed], 2, storage)['add']).toEqual({ at: 1, text: definitionText(tool) })
  expect(rememberTools('org/math', [changed], 3, storage)['add']?.at).toBe(1)
  rememberTools('org/math', [{ ...changed, pinned: true }], 4, storage)
  expect(rememberTools('org/math', [changed], 5, storage)['add']).toEqual({ at: 4, text: definitionText(changed) })
  expect(rememberTools('org/other', [changed], 6, storage)).toEqual({})
})
