import { expect, test } from 'vitest'
import { tokensPerSecond } from './speed'

const row = { completion_tokens: 300, latency_ms: 3500, ttft_ms: 500, cache: null }

test('output tokens over the time after the first one', () => {
  expect(tokensPerSecond(row)).toBe(100)
})

test('unknown without a first token, without output, at once, and from the cache', () => {
  for (const change of [{ ttft_ms: null }, { completion_tokens: null }, { completion_tokens: 0 }, { ttft_ms: 3500 }, { cache: 'hit' }]) expect(tokensPerSecond({ ...row, ...change })).toBeNull()
})
