import { expect, test } from 'vitest'
import { asCurl, asPython, type LogDetail } from './copyAs'

const log = {
  method: 'POST',
  path: '/v1/chat/completions',
  source: 'proxy',
  provider: 'anthropic',
  attempts: [{ provider: 'sandbox' }, { provider: 'anthropic' }],
  session_id: 'auto-1',
  user: "o'neil",
  request: { model: 'sandbox-small', messages: [{ role: 'user', content: "it's $HOME" }] },
} as unknown as LogDetail

test('curl output is shell-quoted, names the first target and contains no key', () => {
  expect(asCurl(log, 'http://127.0.0.1:8080')).toBe(
    `curl http://127.0.0.1:8080/v1/chat/completions \\
  -H "X-Gateway-Key: $GATEWAY_KEY" \\
  -H 'X-Gateway-Provider: sandbox' \\
  -H 'X-Gateway-User: o'\\''neil' \\
  -H 'Content-Type: application/json' \\
  -d '{"model":"sandbox-small","messages":[{"role":"user","content":"it'\\''s $HOME"}]}'`,
  )
})

test('a quote in the body cannot end the Python string', () => {
  const code = asPython(log, 'http://127.0.0.1:8080')
  expect(code).toContain(`data=r'''{"model":"sandbox-small","messages":[{"role":"user","content":"it\\u0027s $HOME"}]}'''.encode(),`)
  expect(code).toContain('"X-Gateway-Key": os.environ["GATEWAY_KEY"],')
})
