/** Limits: what they mean in words, and which of them apply to a key. */
import { integer, percent } from './format'

export const UNITS = ['requests', 'tokens', 'input_tokens', 'output_tokens', 'concurrent'] as const
export type Unit = (typeof UNITS)[number]

type Scope = 'org' | 'team' | 'app' | 'key' | 'model'

/** The fields of a limit that say what it means. */
export interface LimitWords extends Partial<Record<Unit, number | null>> {
  scope: Scope
  scope_id?: string | null
  models?: readonly string[] | null
  per: string
  window: 'minute' | 'hour' | 'day'
  reserve?: Record<string, number>
  missing: 'shared' | 'refuse'
  mode: 'enforce' | 'dry_run'
  enabled: boolean
}

const AMOUNTS: Record<Unit, (count: number) => string> = {
  requests: (count) => count === 1 ? '1 request' : `${integer(count)} requests`,
  tokens: (count) => `${integer(count)} tokens`,
  input_tokens: (count) => `${integer(count)} input tokens`,
  output_tokens: (count) => `${integer(count)} output tokens`,
  concurrent: (count) => count === 1 ? '1 call at a time' : `${integer(count)} calls at the same time`,
}
const WINDOWS = { minute: 'a minute', hour: 'an hour', day: 'a day' }
const EACH: Record<string, string> = { key: 'each key', user: 'each user', subject: 'each member', session: 'each session' }
const WITHOUT: Record<string, string> = { user: 'a user', subject: 'a member', session: 'a session' }

/** "each user of team search: 60,000 tokens a minute on claude-*". `name` is that of what the scope names. */
export function limitSentence(limit: LimitWords, name: string): string {
  const counted = UNITS.filter((unit) => unit !== 'concurrent').flatMap((unit) => amount(limit, unit))
  const parts = [...(counted.length > 0 ? [`${join(counted)} ${WINDOWS[limit.window]}`] : []), ...amount(limit, 'concurrent')]
  const models = limit.models?.length ? ` on ${join(limit.models)}` : ''
  return `${owner(limit, name)}: ${parts.length > 0 ? join(parts) : 'no limit yet'}${models}`
}

/** What the sentence leaves out, each as a short sentence. */
export function limitNotes(limit: LimitWords): string[] {
  const notes = Object.entries(limit.reserve ?? {}).map(([name, share]) => `${percent(share)} is kept for keys of class ${name}.`)
  const without = limit.per.startsWith('metadata.') ? limit.per.slice(9) : WITHOUT[limit.per]
  if (without !== undefined) notes.push(limit.missing === 'refuse' ? `Calls without ${without} are refused.` : `Calls without ${without} share one allowance.`)
  if (limit.mode === 'dry_run') notes.push('Dry run: it counts and refuses nothing.')
  if (!limit.enabled) notes.push('It is switched off.')
  return notes
}

function amount(limit: LimitWords, unit: Unit): string[] {
  const count = limit[unit]
  return count == null ? [] : [AMOUNTS[unit](count)]
}

function owner({ scope, per }: LimitWords, name: string): string {
  const whole = scope === 'org' ? 'the organization' : `${scope} ${name}`
  if (per === 'none') return scope === 'org' ? 'the whole organization' : whole
  const each = EACH[per] ?? `each ${per.replace(/^metadata\./, '')} of the metadata`
  return scope === 'org' ? each : `${each} of ${whole}`
}

function join(parts: readonly string[]): string {
  return parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} and ${parts[parts.length - 1]}`
}

/** Whether calls of a key can count against the limit. Which of them do depends on their models. */
export function appliesToKey(limit: Pick<LimitWords, 'scope' | 'scope_id' | 'enabled'>, key: { id: string; app_id: string | null }, teamOfApp: (appId: string) => string | null): boolean {
  if (!limit.enabled) return false
  switch (limit.scope) {
    case 'org':
    case 'model':
      return true
    case 'app':
      return key.app_id !== null && limit.scope_id === key.app_id
    case 'team':
      return key.app_id !== null && limit.scope_id === teamOfApp(key.app_id)
    case 'key':
      return limit.scope_id === key.id
  }
}

/** A share from the text of an input: "70" is 0.7. Null if it is none. */
export function parseShare(text: string): number | null {
  const value = Number(text)
  return text.trim() === '' || !(value > 0 && value < 100) ? null : value / 100
}

export const unitName = (unit: string): string => (unit === 'concurrent' ? 'calls at the same time' : unit.replace('_', ' '))
