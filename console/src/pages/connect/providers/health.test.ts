import { expect, test } from 'vitest'
import { healthOf } from './useProviderHealth'

test.each([
  [100, 0, 'ok', 'healthy: 100 requests in the last hour, 0% errors, p95 900 ms'],
  [100, 5, 'warn', 'degraded: 100 requests in the last hour, 5% errors, p95 900 ms'],
  [1, 1, 'err', 'failing: 1 request in the last hour, 100% errors, p95 900 ms'],
])('%i requests with %i errors', (requests, errors, tone, text) => {
  expect(healthOf(requests, errors, 900)).toEqual({ tone, text })
})
