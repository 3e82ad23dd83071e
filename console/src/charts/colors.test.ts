import { expect, it } from 'vitest'
import { OTHER_COLOR, colorOf, colorsOf } from './colors'

it('gives a name the same colour everywhere, and never that of the rest', () => {
  for (const name of ['openai', 'anthropic', 'gemini', 'sandbox', 'mistral', 'groq', 'my-own']) {
    expect(colorOf(name)).toBe(colorOf(name))
    expect(colorOf(name)).toMatch(/^var\(--series-[1-5]\)$/)
    expect(colorOf(name)).not.toBe(OTHER_COLOR)
  }
})

it('gives neighbours different colours', () => {
  const names = ['a', 'f', 'k', 'p', 'u']
  expect(new Set(names.map(colorOf)).size).toBeLessThan(5)
  expect(new Set(colorsOf(names)).size).toBe(5)
  expect(colorsOf(names)[0]).toBe(colorOf('a'))
})
