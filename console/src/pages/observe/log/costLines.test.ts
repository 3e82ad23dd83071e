import { expect, test } from 'vitest'
import type { Schemas } from '@/api/client'
import { costLines } from './costLines'

const price = { input_per_mtok: 2, output_per_mtok: 10, cache_read_per_mtok: 0.5, reasoning_per_mtok: null } as Schemas['Price']

test('each token is counted once, and reasoning costs what output costs where it has no rate of its own', () => {
  const lines = costLines({ prompt_tokens: 1000, cached_tokens: 400, completion_tokens: 500, reasoning_tokens: 200 }, price)
  expect(lines.map((line) => [line.name, line.tokens, line.rate])).toEqual([
    ['Input', 600, 2],
    ['Input, cached', 400, 0.5],
    ['Output', 300, 10],
    ['Output, reasoning', 200, 10],
  ])
  expect(lines.reduce((sum, line) => sum + (line.amount ?? 0), 0)).toBeCloseTo(0.0064, 10)
})

test('without a price the amounts are unknown, and classes without tokens are omitted', () => {
  const lines = costLines({ prompt_tokens: 3, cached_tokens: null, completion_tokens: 0, reasoning_tokens: 0 }, undefined)
  expect(lines).toEqual([
    { name: 'Input', tokens: 3, rate: null, amount: null },
    { name: 'Output', tokens: 0, rate: null, amount: null },
  ])
})
