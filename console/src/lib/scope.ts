/**
 * Key scopes, with the same rules as the gateway. Provider scopes are alternatives, and so are model scopes. If both
 * kinds are present, a request must match one of each. A trailing `*` is a wildcard.
 */

/** Form state of the scopes; an empty list means no restriction. */
export interface ScopeSelection {
  providers: string[]
  models: string[]
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
  return { providers: namesOfKind(scopes, 'provider'), models: namesOfKind(scopes, 'model') }
}

export function formatScopes({ providers, models }: ScopeSelection): string[] {
  const scopes = [...providers.map((name) => `provider:${name}`), ...models.map((name) => `model:${name}`)]
  return scopes.length > 0 ? scopes : ['*']
}

export function allows(scopes: readonly string[], provider: string, model: string): boolean {
  if (allowsEverything(scopes)) return true
  const { providers, models } = parseScopes(scopes)
  return matchesAny(providers, provider) && matchesAny(models, model)
}

/** The models that a key with these scopes can call. */
export function callableModels(scopes: readonly string[], providers: readonly ProviderModels[]): CallableModel[] {
  return providers.flatMap(({ name, models }) =>
    models.filter(({ id }) => allows(scopes, name, id)).map(({ id }) => ({ provider: name, model: id })),
  )
}

/** Returns the validation error of a list of scopes, or null. */
export function validateScopes(scopes: readonly string[]): string | null {
  if (scopes.length === 0) return 'Name at least one provider or model, or allow everything'
  if (scopes.length > MAX_SCOPES) return `At most ${MAX_SCOPES} scopes fit on one key`
  const invalid = scopes.find((scope) => scope !== '*' && !isWellFormed(scope))
  return invalid === undefined ? null : `“${invalid}” is no provider or model: names have no spaces and at most ${MAX_NAME_BYTES} characters`
}

function isWellFormed(scope: string): boolean {
  const match = /^(?:provider|model):(\S+)$/.exec(scope)
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
