/**
 * What the scopes of a key allow, by the same rules as the gateway: provider scopes are alternatives, so are model
 * scopes, and where both kinds are present a call must match one of each. A `*` at the end stands for anything.
 */

/** As the form has them: empty lists leave the kind open. */
export interface Choice {
  providers: string[]
  models: string[]
}

export interface Callable {
  provider: string
  model: string
}

interface Offer {
  name: string
  models: { id: string }[]
}

const MOST_SCOPES = 100
const LONGEST_NAME = 200

export function isEverything(scopes: readonly string[]): boolean {
  return scopes.includes('*')
}

export function choiceOf(scopes: readonly string[]): Choice {
  return { providers: namesOf(scopes, 'provider'), models: namesOf(scopes, 'model') }
}

export function scopesOf({ providers, models }: Choice): string[] {
  const scopes = [...providers.map((name) => `provider:${name}`), ...models.map((name) => `model:${name}`)]
  return scopes.length > 0 ? scopes : ['*']
}

export function allows(scopes: readonly string[], provider: string, model: string): boolean {
  if (isEverything(scopes)) return true
  const { providers, models } = choiceOf(scopes)
  return fits(providers, provider) && fits(models, model)
}

/** Every model of the list that a key with these scopes can call. */
export function callable(scopes: readonly string[], offers: readonly Offer[]): Callable[] {
  return offers.flatMap(({ name, models }) =>
    models.filter(({ id }) => allows(scopes, name, id)).map(({ id }) => ({ provider: name, model: id })),
  )
}

/** What is wrong with a list of scopes, in the words of a form; null when it is fine. */
export function problemOf(scopes: readonly string[]): string | null {
  if (scopes.length === 0) return 'Name at least one provider or model, or allow everything'
  if (scopes.length > MOST_SCOPES) return `At most ${MOST_SCOPES} scopes fit on one key`
  const bad = scopes.find((scope) => scope !== '*' && !isWellFormed(scope))
  return bad === undefined ? null : `“${bad}” is no provider or model: names have no spaces and at most ${LONGEST_NAME} characters`
}

function isWellFormed(scope: string): boolean {
  const match = /^(?:provider|model):(\S+)$/.exec(scope)
  return match?.[1] !== undefined && new TextEncoder().encode(match[1]).length <= LONGEST_NAME
}

function namesOf(scopes: readonly string[], kind: string): string[] {
  return scopes.filter((scope) => scope.startsWith(`${kind}:`)).map((scope) => scope.slice(kind.length + 1))
}

function fits(patterns: readonly string[], name: string): boolean {
  if (patterns.length === 0) return true
  return patterns.some((pattern) =>
    pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern,
  )
}
