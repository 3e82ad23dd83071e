import { expect, test } from 'vitest'
import { DIALECTS, dialectSnippets, ownSnippets } from './dialects'

const ORIGIN = 'http://127.0.0.1:8080'

test('each dialect has a snippet with its address, the model and a key', () => {
  const snippets = dialectSnippets(ORIGIN, 'smart')
  expect(snippets.map((snippet) => snippet.dialect)).toEqual(DIALECTS)
  for (const { dialect, code } of snippets) {
    expect(code).toContain(`${ORIGIN}/compat/${dialect}`)
    expect(code).toContain('"smart"')
    expect(code).toContain('YOUR_KEY')
  }
})

test('the own API takes the name and a key only', () => {
  for (const { code, dialect } of ownSnippets(ORIGIN, 'smart')) {
    expect(dialect).toBeNull()
    expect(code).toContain(`${ORIGIN}/sdk/v1`)
    expect(code).toMatch(/["']smart["']/)
    expect(code).not.toContain('X-Gateway')
  }
})
