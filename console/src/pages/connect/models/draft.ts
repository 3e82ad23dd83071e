/**
 * Editor state of a named model. Numbers and JSON are kept as typed until the model is saved. Fields that the editor does
 * not know are kept and sent back unchanged.
 */
import type { Schemas } from '@/api/client'
import { isRecord } from '@/api/error'
import { formatRules, parseRules, type Query, type Rule } from './conditions'

export type Model = Schemas['NamedModel']
export type Definition = Schemas['ModelDefinition']
export type Mode = Schemas['ModelMode']
type Strategy = Schemas['ModelStrategy']
type Target = Schemas['ModelTarget']

export const MODES: Record<Mode, { name: string; about: string }> = {
  single: { name: 'Single', about: 'One target. If it fails, the request fails.' },
  order: { name: 'In order', about: 'The first target; after a failure the next one, as listed.' },
  weighted: { name: 'Weighted', about: 'Chosen at random by weight; after a failure another one. A session stays with its target.' },
  cheapest: { name: 'Cheapest', about: 'By price, the lowest first; after a failure the next one.' },
  fastest: { name: 'Fastest', about: 'By measured latency, the lowest first; after a failure the next one.' },
  conditional: { name: 'Conditional', about: 'The target of the first condition that matches, else the default, and no other.' },
}

/** Failures after which the next target can be tried. */
export const CAUSES = { '429': '429 rate limited', '5xx': '5xx server error', timeout: 'timeout', connect: 'no connection', context: 'input too long', content_filter: 'content filter' } as const

export const PRICE_FIELDS = { input_per_mtok: 'Input', output_per_mtok: 'Output', cache_read_per_mtok: 'Cache read', cache_write_per_mtok: 'Cache write', reasoning_per_mtok: 'Reasoning' } as const
export type PriceField = keyof typeof PRICE_FIELDS

export const MAX_TARGETS = 10

export interface ConditionDraft {
  key: string
  /** The id of the target. */
  then: string
  /** Null: the query is edited as JSON. */
  rules: Rule[] | null
  json: string
}

export interface StrategyDraft {
  mode: Mode
  /** Names of `CAUSES`; null for the usual ones. */
  causes: string[] | null
  /** Other statuses, separated by spaces. */
  statuses: string
  conditions: ConditionDraft[]
  default: string
  extra: Record<string, unknown>
}

export interface TargetDraft {
  key: string
  id: string
  provider: string
  model: string
  weight: string
  /** JSON objects. */
  params: string
  defaults: string
  timeout_ms: string
  retries: string
  when: '' | Schemas['Refusal']
  /** Of a group. */
  group: { strategy: StrategyDraft; targets: TargetDraft[] } | null
  extra: Record<string, unknown>
}

export interface ModelDraft {
  name: string
  description: string
  strategy: StrategyDraft
  targets: TargetDraft[]
  retries: string
  timeout_ms: string
  first_byte_timeout_ms: string
  cache: { mode: '' | Schemas['ModelCacheMode']; ttl: string; namespace: string }
  /** Marks for the prompt caches of providers; without a mode the setting of the organization holds. */
  prompt_cache: { mode: '' | 'off' | 'auto'; ttl: '5m' | '1h'; min_tokens: string }
  price: Record<PriceField, string>
  hidden: boolean
  enabled: boolean
  extra: Record<string, unknown>
}

/** Messages by the path of the field, such as `targets[0].provider`. */
export type Problems = Record<string, string>

let keyCount = 0
/** A key for React that is unique among drafts of this browser. */
export function newKey(): string {
  return `${Date.now().toString(36)}-${keyCount++}`
}

export function newTarget(id = ''): TargetDraft {
  return { key: newKey(), id, provider: '', model: '', weight: '', params: '', defaults: '', timeout_ms: '', retries: '', when: '', group: null, extra: {} }
}

export function newGroup(id = ''): TargetDraft {
  return { ...newTarget(id), group: { strategy: newStrategy('weighted'), targets: [newTarget()] } }
}

export function newStrategy(mode: Mode = 'order'): StrategyDraft {
  return { mode, causes: null, statuses: '', conditions: [], default: '', extra: {} }
}

export function newCondition(then = ''): ConditionDraft {
  return { key: newKey(), then, rules: [{ key: newKey(), field: 'metadata.', operator: '$eq', value: '' }], json: '' }
}

export function newModel(): ModelDraft {
  return parseDefinition('', { targets: [{}] })
}

export function fromModel(model: Model): ModelDraft {
  const { id: _, version: _version, created_at: _created, updated_at: _updated, created_by: _by, prompt_cache_pauses: _pauses, name, ...definition } = model
  return parseDefinition(name, definition)
}

function parseDefinition(name: string, definition: Definition): ModelDraft {
  const { name: _, description, strategy, targets, retries, timeout_ms, first_byte_timeout_ms, cache, prompt_cache, price, hidden, enabled, ...extra } = definition
  return {
    name,
    description: description ?? '',
    strategy: parseStrategy(strategy),
    targets: targets.map(parseTarget),
    retries: text(retries),
    timeout_ms: text(timeout_ms),
    first_byte_timeout_ms: text(first_byte_timeout_ms),
    cache: { mode: cache?.mode ?? '', ttl: text(cache?.ttl), namespace: cache?.namespace ?? '' },
    prompt_cache: { mode: prompt_cache ? (prompt_cache.mode ?? 'off') : '', ttl: prompt_cache?.ttl ?? '5m', min_tokens: text(prompt_cache?.min_tokens) },
    price: { input_per_mtok: text(price?.input_per_mtok), output_per_mtok: text(price?.output_per_mtok), cache_read_per_mtok: text(price?.cache_read_per_mtok), cache_write_per_mtok: text(price?.cache_write_per_mtok), reasoning_per_mtok: text(price?.reasoning_per_mtok) },
    hidden: hidden ?? false,
    enabled: enabled ?? true,
    extra,
  }
}

function parseStrategy(strategy: Strategy | null | undefined): StrategyDraft {
  const { mode = 'order', on, conditions, default: fallback, ...extra } = strategy ?? {}
  const causes = on?.map(String) ?? null
  return {
    mode,
    causes: causes?.filter((cause) => cause in CAUSES) ?? null,
    statuses: causes?.filter((cause) => !(cause in CAUSES)).join(' ') ?? '',
    conditions: (conditions ?? []).map(({ query, then }) => ({ key: newKey(), then, rules: parseRules(query, newKey), json: JSON.stringify(query, null, 2) })),
    default: fallback ?? '',
    extra,
  }
}

function parseTarget(target: Target): TargetDraft {
  const { id, provider, model, weight, params, defaults, timeout_ms, retries, when, strategy, targets, ...extra } = target
  return {
    key: newKey(),
    id: id ?? '',
    provider: provider ?? '',
    model: model ?? '',
    weight: text(weight),
    params: params ? JSON.stringify(params, null, 2) : '',
    defaults: defaults ? JSON.stringify(defaults, null, 2) : '',
    timeout_ms: text(timeout_ms),
    retries: text(retries),
    when: when ?? '',
    group: targets ? { strategy: parseStrategy(strategy), targets: targets.map(parseTarget) } : null,
    extra,
  }
}

/** The definition of a draft, or what is wrong with it. */
export function toDefinition(draft: ModelDraft): { definition: Definition; problems: Problems } {
  const problems: Problems = {}
  const number = (path: string, value: string) => parseNumber(path, value, problems)
  const prices = Object.entries(draft.price).map(([field, value]) => [field, number(`price.${field}`, value)] as const)
  const hasPrice = prices.some(([, value]) => value !== null)
  for (const field of ['input_per_mtok', 'output_per_mtok'] as const) {
    if (hasPrice && draft.price[field].trim() === '') problems[`price.${field}`] = 'is required with a price'
  }
  const definition: Definition = {
    ...draft.extra,
    ...(draft.name !== '' && { name: draft.name.trim() }),
    description: draft.description,
    ...formatList('', draft.strategy, draft.targets, problems),
    retries: number('retries', draft.retries),
    timeout_ms: number('timeout_ms', draft.timeout_ms),
    first_byte_timeout_ms: number('first_byte_timeout_ms', draft.first_byte_timeout_ms),
    cache: draft.cache.mode === '' ? null : { mode: draft.cache.mode, ...optional('ttl', number('cache.ttl', draft.cache.ttl)), ...optional('namespace', draft.cache.namespace.trim() || null) },
    prompt_cache: draft.prompt_cache.mode === '' ? null : { mode: draft.prompt_cache.mode, ttl: draft.prompt_cache.ttl, ...optional('min_tokens', number('prompt_cache.min_tokens', draft.prompt_cache.min_tokens)) },
    price: hasPrice ? (Object.fromEntries(prices.filter(([, value]) => value !== null)) as Schemas['ModelPrice']) : null,
    hidden: draft.hidden,
    enabled: draft.enabled,
  }
  return { definition, problems }
}

function formatList(at: string, strategy: StrategyDraft, targets: readonly TargetDraft[], problems: Problems): { strategy: Strategy; targets: Target[] } {
  return {
    strategy: formatStrategy(`${at}strategy.`, strategy, problems),
    targets: targets.map((target, index) => formatTarget(`${at}targets[${index}].`, target, strategy.mode, problems)),
  }
}

function formatStrategy(at: string, strategy: StrategyDraft, problems: Problems): Strategy {
  const { mode, causes, statuses, conditions, extra } = strategy
  const others = statuses.split(/[\s,]+/).filter(Boolean)
  const wrong = others.find((status) => !/^\d+$/.test(status))
  if (causes !== null && wrong !== undefined) problems[`${at}on`] = `${wrong} is not a status`
  const on = causes && [...causes, ...others].map((cause) => (/^\d+$/.test(cause) ? Number(cause) : cause))
  return {
    ...extra,
    mode,
    ...(on && { on: on as Schemas['FallbackCause'][] }),
    ...(mode === 'conditional' && {
      conditions: conditions.map((condition, index) => ({ query: formatQuery(`${at}conditions[${index}].query`, condition, problems), then: condition.then })),
      ...optional('default', strategy.default || null),
    }),
  }
}

function formatQuery(path: string, { rules, json }: ConditionDraft, problems: Problems): Query {
  if (rules !== null) return formatRules(rules)
  return parseObject(path, json, problems) ?? {}
}

function formatTarget(at: string, target: TargetDraft, mode: Mode, problems: Problems): Target {
  const { group, when, extra } = target
  const number = (field: 'weight' | 'timeout_ms' | 'retries') => optional(field, parseNumber(at + field, target[field], problems))
  return {
    ...extra,
    // An id that is only a place is assigned anew, so that it is right after a move. Conditions refer to ids.
    ...(target.id.trim() !== '' && (mode === 'conditional' || !isPlace(target.id)) && { id: target.id.trim() }),
    ...(mode === 'weighted' && number('weight')),
    ...(when !== '' && { when }),
    ...(group
      ? formatList(at, group.strategy, group.targets, problems)
      : {
          provider: target.provider,
          model: target.model.trim(),
          ...optional('params', parseObject(`${at}params`, target.params, problems)),
          ...optional('defaults', parseObject(`${at}defaults`, target.defaults, problems)),
          ...number('timeout_ms'),
          ...number('retries'),
        }),
  }
}

/** Whether an id is the default one: the place of the target. */
export function isPlace(id: string): boolean {
  return /^\d+(\.\d+)?$/.test(id.trim())
}

/** Gives an id to each target without one, for conditions to refer to. */
export function withIds(targets: readonly TargetDraft[]): TargetDraft[] {
  const used = new Set(targets.map((target) => target.id))
  return targets.map((target) => {
    if (target.id !== '') return target
    let number = 1
    while (used.has(`target-${number}`)) number += 1
    used.add(`target-${number}`)
    return { ...target, id: `target-${number}` }
  })
}

/** Whether a stored model differs from a draft. */
export function isChanged(draft: ModelDraft, model: Model): boolean {
  const { definition, problems } = toDefinition(draft)
  return Object.keys(problems).length > 0 || JSON.stringify(definition) !== JSON.stringify(toDefinition(fromModel(model)).definition)
}

/** The definition as JSON, for a diff. */
export function definitionText(model: Model): string {
  return JSON.stringify(toDefinition(fromModel(model)).definition, null, 2)
}

function parseNumber(path: string, value: string, problems: Problems): number | null {
  if (value.trim() === '') return null
  const number = Number(value)
  if (!Number.isFinite(number)) problems[path] = 'must be a number'
  return number
}

function parseObject(path: string, value: string, problems: Problems): Record<string, unknown> | null {
  if (value.trim() === '') return null
  try {
    const parsed: unknown = JSON.parse(value)
    if (isRecord(parsed)) return parsed
    problems[path] = 'must be a JSON object'
  } catch (failure) {
    problems[path] = `must be a JSON object: ${failure instanceof Error ? failure.message : ''}`
  }
  return null
}

function optional<Name extends string, Value>(name: Name, value: Value | null): { [Key in Name]?: Value } {
  return (value === null ? {} : { [name]: value }) as { [Key in Name]?: Value }
}

function text(value: number | null | undefined): string {
  return value == null ? '' : String(value)
}
