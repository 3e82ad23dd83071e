import { expect, test } from 'vitest'
import { paramWords, runTitle, targetOf } from './runs'

test('a run is named by model, prompt and dataset', () => {
  const target = { provider: 'openai', model: 'gpt-4o-mini', prompt: { namespace: 'support', slug: 'answer-briefly', version: 2 } }
  expect(runTitle({ target, dataset_id: 'd', dataset_version: 1 }, 'Support questions')).toBe('gpt-4o-mini · support/answer-briefly v2 · Support questions v1')
  expect(runTitle({ target: { ...target, prompt: null }, dataset_id: 'd', dataset_version: null }, undefined)).toBe('gpt-4o-mini · dataset (working copy)')
  expect(runTitle({ target: null, dataset_id: null, dataset_version: null }, undefined)).toBe('logged requests')
})

test('runs with other parameters have other names', () => {
  const target = { provider: 'openai', model: 'm', params: { temperature: 0, tools: [{}], reasoning_effort: 'low', stop: 'x'.repeat(21) } }
  expect(runTitle({ target, dataset_id: null, dataset_version: null }, undefined)).toBe('m · temperature 0 · tools · reasoning_effort low · stop · logged requests')
  expect(paramWords({})).toEqual([])
})

test('another run starts with the whole target', () => {
  const prompt = { namespace: 'a', slug: 'b', version: 2, variables: { name: 'Ada' } }
  const target = { provider: 'openai', model: 'm', prompt, params: { temperature: 0 } }
  expect(targetOf({ target })).toEqual({ provider: 'openai', model: 'm', prompt: { namespace: 'a', slug: 'b', version: 2 }, params: { temperature: 0 }, variables: { name: 'Ada' } })
  expect(targetOf({ target: { provider: 'openai', model: 'm' } })).toEqual({ provider: 'openai', model: 'm', prompt: null, params: {}, variables: {} })
  expect(targetOf({ target: null })).toBeUndefined()
})
