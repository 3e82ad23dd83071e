import { expect, it } from 'vitest'
import { allows, callableModels, parseScopes, reachesServer, validateScopes, formatScopes } from './scope'

const PROVIDERS = [
  { name: 'openai', models: [{ id: 'gpt-4o' }, { id: 'gpt-4o-mini' }, { id: 'o3' }] },
  { name: 'azure-openai', models: [{ id: 'gpt-4o' }] },
]

it('providers are alternatives, so are models, and both kinds must match if both are given', () => {
  expect(allows(['*'], 'any', 'thing')).toBe(true)
  expect(allows(['provider:openai', 'provider:groq'], 'groq', 'x')).toBe(true)
  expect(allows(['provider:openai'], 'groq', 'x')).toBe(false)
  expect(allows(['model:gpt-4o'], 'azure-openai', 'gpt-4o')).toBe(true)
  expect(allows(['model:gpt-4o'], 'openai', 'gpt-4o-mini')).toBe(false)
  expect(allows(['model:gpt-4o*'], 'openai', 'gpt-4o-mini')).toBe(true)
  expect(allows(['provider:open*', 'model:gpt*'], 'openai', 'o3')).toBe(false)
  expect(allows(['provider:openai', 'model:gpt-4o'], 'azure-openai', 'gpt-4o')).toBe(false)
  expect(allows(['provider:none', '*'], 'openai', 'o3')).toBe(true)
  expect(allows(['proxy'], 'openai', 'o3')).toBe(true)
  expect(allows(['read'], 'openai', 'o3')).toBe(false)
  expect(allows(['read', 'provider:openai'], 'openai', 'o3')).toBe(true)
})

it('lists the models that a key can call', () => {
  expect(callableModels(['model:gpt-4o*'], PROVIDERS)).toHaveLength(3)
  expect(callableModels(['provider:azure-openai', 'model:gpt-4o*'], PROVIDERS)).toEqual([{ provider: 'azure-openai', model: 'gpt-4o' }])
  expect(callableModels(['*'], PROVIDERS)).toHaveLength(4)
})

it('goes from scopes to the form and back', () => {
  const scopes = ['provider:openai', 'model:gpt-4o*', 'model:meta:llama']
  expect(parseScopes(scopes)).toEqual({ use: 'some', providers: ['openai'], models: ['gpt-4o*', 'meta:llama'], mcp: [], reads: false })
  for (const list of [scopes, [...scopes, 'read'], ['*'], ['proxy'], ['proxy', 'read'], ['read'], ['mcp:*'], ['mcp:github', 'read'], ['proxy', 'mcp:github/get_*'], ['provider:openai', 'mcp:github', 'read']]) {
    expect(formatScopes(parseScopes(list))).toEqual(list)
  }
  expect(formatScopes(parseScopes([]))).toEqual(['proxy'])
})

it('reports invalid scopes', () => {
  expect(validateScopes(['*'])).toBeNull()
  expect(validateScopes(['proxy', 'read'])).toBeNull()
  expect(validateScopes(['provider:openai', 'model:a/b:c'])).toBeNull()
  expect(validateScopes([])).toMatch(/at least one/)
  expect(validateScopes(['model:'])).toMatch(/not a provider, model or MCP server/)
  expect(validateScopes(['model:two words'])).toMatch(/two words/)
  expect(validateScopes([`model:${'x'.repeat(201)}`])).toMatch(/200/)
  expect(validateScopes(Array.from({ length: 101 }, (_, at) => `model:m${at}`))).toMatch(/100/)
})

it('says which MCP servers a key reaches', () => {
  expect(reachesServer(['*'], 'github')).toBe(true)
  expect(reachesServer(['mcp:*'], 'github')).toBe(true)
  expect(reachesServer(['proxy', 'mcp:github/get_*'], 'github')).toBe(true)
  expect(reachesServer(['mcp:git'], 'github')).toBe(false)
  expect(reachesServer(['proxy', 'read'], 'github')).toBe(false)
  expect(allows(['mcp:*'], 'openai', 'o3')).toBe(false)
})
