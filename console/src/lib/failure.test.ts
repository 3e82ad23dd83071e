import { expect, test } from 'vitest'
import { detailedFailure, failureOf, isFailed, parseFailure } from './failure'

const attempt = { provider: 'openai', model: 'gpt-4o', status: 500, start_ms: 0, ttft_ms: null, latency_ms: 3, error: null as string | null }

test.each([
  ['{"error":{"message":"bad day","type":"server_error","code":null}}', 'bad day', 'server_error'],
  ['it answered 429: {"error":{"message":"slow down","code":"rate_limit_exceeded"}}', 'slow down', 'rate_limit_exceeded'],
  ['{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', 'Overloaded', 'overloaded_error'],
  ['[{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}]', 'API key not valid', 'INVALID_ARGUMENT'],
  ['{"error":"model not found"}', 'model not found', null],
  ['{"error":{"message":"a \\"quoted\\" text that was cut', 'a "quoted" text that was cut', null],
  ['connection refused', 'connection refused', null],
])('%s', (text, message, code) => {
  expect(parseFailure(text)).toEqual({ message, code })
})

test('the last failed attempt names the reason, then the code of the gateway', () => {
  expect(failureOf({ status: 200, error_code: null, attempts: [{ ...attempt, error: 'first try failed' }] })).toBeNull()
  expect(failureOf({ status: 502, error_code: 'upstream', attempts: [{ ...attempt, error: 'one' }, { ...attempt, error: 'two' }] })?.message).toBe('two')
  expect(failureOf({ status: 429, error_code: 'rate_limited', attempts: [] })).toEqual({ message: 'Rate limited', code: 'rate_limited' })
})

test('the body of the response is preferred', () => {
  expect(detailedFailure({ status: 400, error_code: null, attempts: [], response: { error: { message: 'no such model' } } })?.message).toBe('no such model')
  expect(detailedFailure({ status: 400, error_code: 'bad_request', attempts: [], response: null })?.message).toBe('Bad request')
})

test('a row with an error code has failed, whatever its status', () => {
  expect([isFailed({ status: 200, error_code: null }), isFailed({ status: 200, error_code: 'provider_error' }), isFailed({ status: 429, error_code: null })]).toEqual([false, true, true])
  expect(failureOf({ status: 200, error_code: 'provider_error', attempts: [] })?.message).toBe('Provider error')
})
