import { expect, it } from 'vitest'
import { requestSnippets } from './snippets'

const KEY = `sk-gateway-${'1a2b3c4d'.repeat(8)}`

it('shows the key masked and copies it whole', () => {
  for (const snippet of requestSnippets({ origin: 'http://127.0.0.1:8080', key: KEY, provider: 'sandbox', model: 'sandbox-small' })) {
    expect(snippet.code).not.toContain(KEY)
    expect(snippet.code).toContain('sk-gateway-1a2b3c4d…')
    expect(snippet.copy()).toContain(KEY)
    expect(snippet.copy()).toContain('http://127.0.0.1:8080/v1')
  }
})

it('uses a placeholder for an unknown key', () => {
  const [first] = requestSnippets({ origin: 'http://x', key: null, provider: 'sandbox', model: 'm' })
  expect(first?.copy()).toContain('X-Gateway-Key: YOUR_KEY')
})
