import { expect, it } from 'vitest'
import { clientSettings, requestSnippets } from './snippets'

const KEY = `sk-gateway-${'1a2b3c4d'.repeat(8)}`
const choice = { origin: 'http://127.0.0.1:8080', key: KEY, provider: 'sandbox', model: 'sandbox-small' }

it('shows the key masked and copies it whole', () => {
  for (const snippet of [...requestSnippets(choice), clientSettings(choice)]) {
    expect(snippet.code).not.toContain(KEY)
    expect(snippet.code).toContain('sk-gateway-1a2b3c4d…')
    expect(snippet.copy()).toContain(KEY)
    expect(snippet.copy()).toContain('http://127.0.0.1:8080/sdk/v1')
  }
})

it('needs no header of the gateway: the model names its provider', () => {
  for (const snippet of requestSnippets(choice)) {
    expect(snippet.code).toContain('sandbox/sandbox-small')
    expect(snippet.code).not.toMatch(/X-Gateway/)
  }
  for (const snippet of requestSnippets({ ...choice, provider: 'auto', model: 'everyday' })) expect(snippet.code).toMatch(/["']everyday["']/)
})

it('uses a placeholder for an unknown key', () => {
  const [first] = requestSnippets({ origin: 'http://x', key: null, provider: 'sandbox', model: 'm' })
  expect(first?.copy()).toContain('Authorization: Bearer YOUR_KEY')
})
