import { expect, test } from 'vitest'
import { appliesToKey, limitNotes, limitSentence, parseShare, unitName, type LimitWords } from './limits'

const limit = (change: Partial<LimitWords>): LimitWords => ({ scope: 'org', per: 'none', window: 'minute', missing: 'shared', mode: 'enforce', enabled: true, ...change })

test('a limit is said in one sentence', () => {
  const sentences: [Partial<LimitWords>, string, string][] = [
    [{ scope: 'team', per: 'user', tokens: 60_000, models: ['claude-*'] }, 'search', 'each user of team search: 60,000 tokens a minute on claude-*'],
    [{ requests: 1, window: 'hour' }, '', 'the whole organization: 1 request an hour'],
    [{ per: 'key', requests: 100, input_tokens: 5_000, output_tokens: 1_000, concurrent: 2 }, '', 'each key: 100 requests, 5,000 input tokens and 1,000 output tokens a minute and 2 calls at the same time'],
    [{ scope: 'key', concurrent: 1 }, 'ci', 'key ci: 1 call at a time'],
    [{ scope: 'model', tokens: 10, window: 'day', models: ['a', 'b', 'c'] }, 'fast', 'model fast: 10 tokens a day on a, b and c'],
    [{ per: 'metadata.tenant', requests: 5 }, '', 'each tenant of the metadata: 5 requests a minute'],
    [{}, '', 'the whole organization: no limit yet'],
  ]
  for (const [change, name, sentence] of sentences) expect(limitSentence(limit(change), name)).toBe(sentence)
})

test('notes say what the sentence leaves out', () => {
  expect(limitNotes(limit({ reserve: { prod: 0.7 } }))).toEqual(['70% is kept for keys of class prod.'])
  expect(limitNotes(limit({ per: 'user' }))).toEqual(['Calls without a user share one allowance.'])
  expect(limitNotes(limit({ per: 'metadata.tenant', missing: 'refuse', mode: 'dry_run', enabled: false }))).toEqual(['Calls without tenant are refused.', 'Dry run: it counts and refuses nothing.', 'It is switched off.'])
  expect(limitNotes(limit({ per: 'key' }))).toEqual([])
})

test('a key has the limits of its organization, team, application and its own', () => {
  const key = { id: 'k1', app_id: 'a1' }
  const team = (app: string) => (app === 'a1' ? 't1' : null)
  const applies = (scope: LimitWords['scope'], scope_id: string | null, of = key) => appliesToKey(limit({ scope, scope_id }), of, team)
  expect([applies('org', null), applies('model', 'gpt-4o'), applies('app', 'a1'), applies('team', 't1'), applies('key', 'k1')]).toEqual([true, true, true, true, true])
  expect([applies('app', 'a2'), applies('team', 't2'), applies('key', 'k2')]).toEqual([false, false, false])
  const alone = { id: 'k1', app_id: null as string | null }
  expect(appliesToKey(limit({ scope: 'team', scope_id: 't1' }), alone, team)).toBe(false)
  expect(appliesToKey(limit({ enabled: false }), key, team)).toBe(false)
})

test('a share is a percentage above 0', () => {
  expect(['70', '99.5', '100', '0', '101', '', 'x'].map(parseShare)).toEqual([0.7, 0.995, null, null, null, null, null])
  expect(['concurrent', 'input_tokens'].map(unitName)).toEqual(['calls at the same time', 'input tokens'])
})
