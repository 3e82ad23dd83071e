import { expect, test } from 'vitest'
import type { Schemas } from '@/api/client'
import { leavesOf, sum, sumTargets } from './usage'

const row = (key: string, requests: number, cost_usd: number | null, errors = 0) => ({ key, name: key, requests, errors, cost_usd, unpriced: cost_usd === null ? requests : 0 }) as Schemas['BreakdownRow']
const ROWS: Record<string, Schemas['BreakdownRow'][]> = { openai: [row('gpt-4o', 3, 0.5, 1), row('gpt-4o-mini', 7, null), row('o4-mini', 1, 0.1)], sandbox: [] }

test('targets are summed by provider and model, those of groups and patterns included', () => {
  const targets = [{ provider: 'openai', model: 'gpt-4o' }, { targets: [{ provider: 'openai', model: 'gpt-*' }, { provider: 'sandbox', model: 'sandbox-small' }] }]
  expect(leavesOf(targets)).toHaveLength(3)
  expect(sumTargets(targets, (provider) => ROWS[provider])).toEqual([
    { name: 'openai/gpt-4o', requests: 3, errors: 1, cost_usd: 0.5, unpriced: 0 },
    { name: 'openai/gpt-*', requests: 10, errors: 1, cost_usd: 0.5, unpriced: 7 },
    { name: 'sandbox/sandbox-small', requests: 0, errors: 0, cost_usd: 0, unpriced: 0 },
  ])
})

test('what is not known is not zero', () => {
  expect(sumTargets([{ provider: 'groq', model: 'llama' }], (provider) => ROWS[provider])).toBeNull()
  expect(sum('x', [row('a', 2, null)]).cost_usd).toBeNull()
})
