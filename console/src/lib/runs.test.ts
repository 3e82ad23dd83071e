import { expect, test } from 'vitest'
import { runTitle } from './runs'

test('a run is named by model, prompt and dataset', () => {
  const target = { provider: 'openai', model: 'gpt-4o-mini', prompt: { namespace: 'support', slug: 'answer-briefly', version: 2 } }
  expect(runTitle({ target, dataset_id: 'd', dataset_version: 1 }, 'Support questions')).toBe('gpt-4o-mini · support/answer-briefly v2 · Support questions v1')
  expect(runTitle({ target: { ...target, prompt: null }, dataset_id: 'd', dataset_version: null }, undefined)).toBe('gpt-4o-mini · dataset (working copy)')
  expect(runTitle({ target: null, dataset_id: null, dataset_version: null }, undefined)).toBe('logged requests')
})
