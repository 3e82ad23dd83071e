import { expect, test } from 'vitest'
import type { Schemas } from '@/api/client'
import { ranked } from './ranked'

const row = (key: string, values: Partial<Schemas['BreakdownRow']>) => ({ key, name: key, cost_usd: null, errors: 0, p95_ms: null, ...values }) as Schemas['BreakdownRow']

test('the highest first, unknown values last', () => {
  const rows = [row('a', { errors: 3 }), row('b', { cost_usd: 0, errors: 9 }), row('c', { cost_usd: 2, p95_ms: 10 })]
  expect(ranked(rows, 'cost').map((one) => one.key)).toEqual(['c', 'b', 'a'])
  expect(ranked(rows, 'errors').map((one) => one.key)).toEqual(['b', 'a', 'c'])
  expect(ranked(rows, 'p95').map((one) => one.key)).toEqual(['c', 'a', 'b'])
})
