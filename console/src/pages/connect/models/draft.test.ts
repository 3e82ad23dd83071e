import { expect, test } from 'vitest'
import { describeQuery, formatRules, parseRules } from './conditions'
import { fromModel, isChanged, newCondition, newTarget, toDefinition, withIds, type Model } from './draft'

const key = () => ''
const MODEL: Model = {
  id: '01a1e02c-31e1-7000-8000-000000000000',
  name: 'smart',
  description: 'For hard questions',
  strategy: { mode: 'order', on: [429, '5xx', 401] },
  targets: [
    { id: '1', provider: 'openai', model: 'gpt-4o', params: { temperature: 0 }, retries: 2 },
    { id: 'pool', when: 'context', strategy: { mode: 'weighted' }, targets: [{ id: '2.1', provider: 'sandbox', model: 'sandbox-large', weight: 3 }] },
  ],
  retries: null,
  timeout_ms: 1000,
  first_byte_timeout_ms: null,
  cache: { mode: 'exact', ttl: 60 },
  prompt_cache: { mode: 'auto', ttl: '1h', min_tokens: 1024 },
  prompt_cache_pauses: [],
  price: { input_per_mtok: 1.5, output_per_mtok: 0 },
  hidden: true,
  enabled: true,
  version: 3,
  created_by: null,
  created_at: '2026-11-16T00:00:00Z',
  updated_at: '2026-11-16T00:00:00Z',
}

test('a model is the same after it was read and written', () => {
  const { definition, problems } = toDefinition(fromModel(MODEL))
  expect(problems).toEqual({})
  expect(definition).toEqual({
    name: 'smart',
    description: 'For hard questions',
    strategy: { mode: 'order', on: [429, '5xx', 401] },
    targets: [
      { provider: 'openai', model: 'gpt-4o', params: { temperature: 0 }, retries: 2 },
      { id: 'pool', when: 'context', strategy: { mode: 'weighted' }, targets: [{ provider: 'sandbox', model: 'sandbox-large', weight: 3 }] },
    ],
    retries: null,
    timeout_ms: 1000,
    first_byte_timeout_ms: null,
    cache: { mode: 'exact', ttl: 60 },
    prompt_cache: { mode: 'auto', ttl: '1h', min_tokens: 1024 },
    price: { input_per_mtok: 1.5, output_per_mtok: 0 },
    hidden: true,
    enabled: true,
  })
  expect(isChanged(fromModel(MODEL), MODEL)).toBe(false)
  expect(isChanged({ ...fromModel(MODEL), hidden: false }, MODEL)).toBe(true)
})

test('fields that the editor does not know are kept', () => {
  const newer = { ...MODEL, guardrails: ['pii'], targets: [{ ...MODEL.targets[0], region: 'eu' }] } as unknown as Model
  const { definition } = toDefinition(fromModel(newer))
  expect(definition).toMatchObject({ guardrails: ['pii'], targets: [{ region: 'eu' }] })
})

test('what cannot be sent is named by its field', () => {
  const draft = fromModel(MODEL)
  const [first] = draft.targets
  const wrong = { ...draft, timeout_ms: 'soon', price: { ...draft.price, output_per_mtok: '' }, targets: [{ ...(first ?? newTarget()), params: '[1]', defaults: '{' }], strategy: { ...draft.strategy, statuses: 'all' } }
  const { problems } = toDefinition(wrong)
  expect(Object.keys(problems).sort()).toEqual(['price.output_per_mtok', 'strategy.on', 'targets[0].defaults', 'targets[0].params', 'timeout_ms'])
})

test('ids of places are assigned anew except where conditions refer to them', () => {
  const draft = { ...fromModel(MODEL), targets: [{ ...newTarget('2'), provider: 'sandbox', model: 'a' }] }
  expect(toDefinition(draft).definition.targets[0]).not.toHaveProperty('id')
  const conditional = { ...draft, strategy: { ...draft.strategy, mode: 'conditional' as const, conditions: [newCondition('2')], default: '2' } }
  expect(toDefinition(conditional).definition.targets[0]).toMatchObject({ id: '2' })
  expect(toDefinition(conditional).definition.strategy).toMatchObject({ default: '2', conditions: [{ then: '2', query: { 'metadata.': { $eq: '' } } }] })
  expect(withIds([newTarget('target-1'), newTarget()]).map((target) => target.id)).toEqual(['target-1', 'target-2'])
})

test('simple queries are rules, and others stay JSON', () => {
  const query = { 'metadata.plan': { $in: ['paid', 'trial'] }, 'params.temperature': { $gte: 0, $lt: 1 }, user: 'anna', 'metadata.code': '5', 'headers.x-beta': true }
  const rules = parseRules(query, key)
  expect(rules?.map(({ field, operator, value }) => [field, operator, value])).toEqual([
    ['metadata.plan', '$in', 'paid, trial'],
    ['params.temperature', '$gte', '0'],
    ['params.temperature', '$lt', '1'],
    ['user', '$eq', 'anna'],
    ['metadata.code', '$eq', '"5"'],
    ['headers.x-beta', '$eq', 'true'],
  ])
  expect(formatRules(rules ?? [])).toEqual({ ...query, user: { $eq: 'anna' }, 'metadata.code': { $eq: '5' }, 'headers.x-beta': { $eq: true } })
  expect(parseRules({ $or: [{ user: 'anna' }] }, key)).toBeNull()
  expect(parseRules({ user: { $in: ['a, b'] } }, key)).toBeNull()
  expect(formatRules([{ key: '', field: 'user', operator: '$ne', value: 'a' }, { key: '', field: 'user', operator: '$ne', value: 'b' }])).toEqual({ $and: [{ user: { $ne: 'a' } }, { user: { $ne: 'b' } }] })
  expect(describeQuery(query)).toContain('metadata.plan is one of paid, trial and params.temperature ≥ 0')
})
