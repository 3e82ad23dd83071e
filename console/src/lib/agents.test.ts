import { expect, test } from 'vitest'
import { agentSnippets } from './agents'

const KEY = 'sk-gateway-1a2b3c4d5e6f7a8b'

test('the key is masked on screen and whole in what is copied', () => {
  const [claude] = agentSnippets({ origin: 'https://g.example', server: null, key: KEY })
  expect(claude?.code).not.toContain(KEY)
  expect(claude?.copy()).toBe(`claude mcp add --transport http gateway https://g.example/mcp --header "X-Gateway-Key: ${KEY}"`)
})

test('one server has an address of its own, and settings are valid JSON', () => {
  const snippets = agentSnippets({ origin: 'https://g.example', server: 'github', key: null })
  expect(snippets.map(({ name }) => name)).toEqual(['Claude Code', 'Codex', 'Cursor', 'VS Code'])
  for (const { code } of snippets) expect(code).toContain('https://g.example/mcp/github')
  expect(JSON.parse(snippets[2]?.code ?? '')).toEqual({ mcpServers: { github: { url: 'https://g.example/mcp/github', headers: { 'X-Gateway-Key': '${env:GATEWAY_KEY}' } } } })
  expect(JSON.parse(snippets[3]?.code ?? '').servers.github.type).toBe('http')
})
