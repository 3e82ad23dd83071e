import { expect, test } from 'vitest'
import { countByStatus, guessSource, selectFindings, type Finding } from './sources'

const FINDINGS: Finding[] = [
  { path: 'model_list[0].model_name', status: 'exact', message: 'the name of the model' },
  { path: 'general_settings.custom_auth', status: 'unsupported', message: 'code is not imported' },
  { path: 'model_list[0].litellm_params.rpm', status: 'manual', message: 'set a limit' },
  { path: 'router_settings.cooldown_time', status: 'approximate', message: 'circuit breakers' },
]

test('findings that need a decision come first, and words narrow them', () => {
  expect(selectFindings(FINDINGS, undefined, '').map((finding) => finding.status)).toEqual(['unsupported', 'manual', 'approximate', 'exact'])
  expect(selectFindings(FINDINGS, 'manual', '')).toHaveLength(1)
  expect(selectFindings(FINDINGS, undefined, 'MODEL_LIST limit').map((finding) => finding.path)).toEqual(['model_list[0].litellm_params.rpm'])
  expect(countByStatus(FINDINGS)).toEqual({ unsupported: 1, manual: 1, approximate: 1, exact: 1 })
})

test('a file tells where it comes from', () => {
  expect(guessSource('model_list:\n  - model_name: a')).toBe('litellm')
  expect(guessSource('token,key_name,key_alias,spend\naaaa,sk-...1,ci,0')).toBe('litellm-keys')
  expect(guessSource('COPY public."LiteLLM_VerificationToken" (token, key_name) FROM stdin;')).toBe('litellm-keys')
  expect(guessSource('{"configs": [{"slug": "pc-1", "config": {}}]}')).toBe('portkey')
  expect(guessSource('{"presets": [{"slug": "fast"}]}')).toBe('openrouter')
  expect(guessSource('routers:\n  chat: {}')).toBe('helicone')
  expect(guessSource('hello')).toBeNull()
})
