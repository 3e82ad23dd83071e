/**
 * Key scopes, with the same rules as the gateway. `*` allows everything, also to manage. `proxy` allows all providers and
 * models, `read` what a viewer may read. Provider scopes are alternatives, and so are model scopes. If both kinds are
 * present, a request must match one of each. `mcp:` scopes allow MCP servers (`mcp:github`) or tools of one
 * (`mcp:github/get_*`), and no model. A trailing `*` is a wildcard.
 */

/** What a key is for. */
export type KeyUse = 'proxy' | 'some' | 'mcp' | 'read' | 'everything'

/** Form state of the scopes; an empty list means no restriction. */
export interface ScopeSelection {
  use: KeyUse
  providers: string[]
  models: string[]
  /** MCP servers, or tools of them: `github`, `github/get_*`. */
  mcp: string[]
  /** Reads log rows and usage of others, besides calling models. */
  reads: boolean
}

export interface CallableModel {
  provider: string
  model: string
}

interface ProviderModels {
  name: string
  models: { id: string }[]
}

const MAX_SCOPES = 100
const MAX_NAME_BYTES = 200

export function allowsEverything(scopes: readonly string[]): boolean {
  return scopes.includes('*')
}

export function parseScopes(scopes: readonly string[]): ScopeSelection {
  const [providers, models] = [namesOfKind(scopes, 'provider'), namesOfKind(scopes, 'model')]
  const mcp = namesOfKind(scopes, 'mcp')
  const reads = scopes.includes('read')
  const limited = providers.length + models.length > 0
  const use = allowsEverything(scopes) ? 'everything' : scopes.includes('proxy') || scopes.length === 0 ? 'proxy' : limited ? 'some' : mcp.length > 0 ? 'mcp' : 'read'
  return { use, providers, models, mcp, reads }
}

export function formatScopes({ use, providers, models, mcp, reads }: ScopeSelection): string[] {
  if (use === 'everything') return ['*']
  if (use === 'read') return ['read']
  const named = [...providers.map((name) => `provider:${name}`), ...models.map((name) => `model:${name}`)]
  if (use === 'some' && named.length === 0) return []
  if (use === 'mcp' && mcp.length === 0) return []
  const calls = use === 'proxy' ? ['proxy'] : use === 'some' ? named : []
  return [...calls, ...mcp.map((name) => `mcp:${name}`), ...(reads ? ['read'] : [])]
}

export function allows(scopes: readonly string[], provider: string, model: string): boolean {
  if (allowsEverything(scopes) || scopes.includes('proxy')) return true
  const { providers, models } = parseScopes(scopes)
  if (providers.length + models.length === 0) return false
  return matchesAny(providers, provider) && matchesAny(models, model)
}

/** True if a key with these scopes reaches an MCP server, or some of its tools. */
export function reachesServer(scopes: readonly string[], server: string): boolean {
  if (allowsEverything(scopes)) return true
  const patterns = namesOfKind(scopes, 'mcp').map((name) => name.split('/')[0] ?? '')
  return patterns.length > 0 && matchesAny(patterns, server)
}

/** The models that a key with these scopes can call. */
export function callableModels(scopes: readonly string[], providers: readonly ProviderModels[]): CallableModel[] {
  return providers.flatMap(({ name, models }) =>
    models.filter(({ id }) => allows(scopes, name, id)).map(({ id }) => ({ provider: name, model: id })),
  )
}

/** Returns the validation error of a list of scopes, or null. */
export function validateScopes(scopes: readonly string[]): string | null {
  if (scopes.length === 0) return 'Name at least one provider, model or MCP server, or choose another use'
  if (scopes.length > MAX_SCOPES) return `At most ${MAX_SCOPES} scopes fit on one key`
  const invalid = scopes.find((scope) => !['*', 'proxy', 'read'].includes(scope) && !isWellFormed(scope))
  return invalid === undefined ? null : `“${invalid}” is not a provider, model or MCP server: names have no spaces and at most ${MAX_NAME_BYTES} characters`
}

function isWellFormed(scope: string): boolean {
  const match = /^(?:provider|model|mcp):(\S+)$/.exec(scope)
  return match?.[1] !== undefined && new TextEncoder().encode(match[1]).length <= MAX_NAME_BYTES
}

function namesOfKind(scopes: readonly string[], kind: string): string[] {
  return scopes.filter((scope) => scope.startsWith(`${kind}:`)).map((scope) => scope.slice(kind.length + 1))
}

function matchesAny(patterns: readonly string[], name: string): boolean {
  if (patterns.length === 0) return true
  return patterns.some((pattern) =>
    pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern,
  )
}
