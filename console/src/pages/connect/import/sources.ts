/** What can be imported, and what people need to bring for it. */
import type { Schemas } from '@/api/client'
import type { Tone } from '@/ui'
import type { Dialect } from '../dialects'

export type Source = Schemas['ImportSource']
export type Status = Schemas['ImportStatus']
export type Result = Schemas['ImportResult']
export type Finding = Schemas['ImportFinding']

interface SourceInfo {
  name: string
  about: string
  accept: string
  placeholder: string
  dialect: Dialect
}

export const SOURCES: Record<Source, SourceInfo> = {
  litellm: { name: 'LiteLLM', about: 'The config.yaml of its proxy: models, fallbacks, router settings.', accept: '.yaml,.yml,.json', placeholder: 'model_list:\n  - model_name: gpt-4o\n    litellm_params: {model: openai/gpt-4o}', dialect: 'litellm' },
  'litellm-keys': { name: 'LiteLLM keys', about: 'The table LiteLLM_VerificationToken as CSV, JSON or an SQL dump. The keys keep working under /compat/litellm.', accept: '.csv,.json,.sql,.txt', placeholder: 'token,key_name,key_alias,models,max_budget,budget_duration', dialect: 'litellm' },
  portkey: { name: 'Portkey', about: 'Saved configs and virtual keys as JSON, or one config.', accept: '.json', placeholder: '{"configs": [{"slug": "pc-chat", "config": {"strategy": {"mode": "fallback"}, "targets": []}}]}', dialect: 'portkey' },
  openrouter: { name: 'OpenRouter', about: 'Presets or request bodies as JSON.', accept: '.json', placeholder: '{"presets": [{"slug": "fast", "config": {"models": ["openai/gpt-4o"]}}]}', dialect: 'openrouter' },
  helicone: { name: 'Helicone', about: 'The config.yaml of its AI gateway: providers and routers.', accept: '.yaml,.yml,.json', placeholder: 'routers:\n  chat:\n    load-balance: …', dialect: 'helicone' },
}

/** The longest file, in bytes, as the gateway reads it. */
export const MAX_BYTES = 8 << 20

/** What a finding means; those that need a decision come first. */
export const STATUSES: Record<Status, { tone: Tone; about: string }> = {
  unsupported: { tone: 'err', about: 'The gateway has nothing like it.' },
  manual: { tone: 'warn', about: 'Not imported; the message says what to do by hand.' },
  approximate: { tone: 'accent', about: 'Imported, and differs in what the message says.' },
  exact: { tone: 'ok', about: 'It means the same here.' },
}
export const STATUS_NAMES = Object.keys(STATUSES) as Status[]

export function countByStatus(findings: readonly Finding[]): Record<Status, number> {
  const counts: Record<Status, number> = { unsupported: 0, manual: 0, approximate: 0, exact: 0 }
  for (const { status } of findings) counts[status] += 1
  return counts
}

/** Findings in the order of `STATUSES`, filtered by status and by words of the path or message. */
export function selectFindings(findings: readonly Finding[], status: Status | undefined, words: string): Finding[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean)
  const rank = (finding: Finding) => STATUS_NAMES.indexOf(finding.status)
  return findings
    .filter((finding) => status === undefined || finding.status === status)
    .filter((finding) => wanted.every((word) => `${finding.path} ${finding.message}`.toLowerCase().includes(word)))
    .toSorted((a, b) => rank(a) - rank(b))
}

const GUESSES: [RegExp, Source][] = [
  [/LiteLLM_VerificationToken|(^|[,"])token["]?,.*key_(name|alias)|"(token|key_alias)"\s*:/i, 'litellm-keys'],
  [/^\s*model_list\s*:|^\s*litellm_settings\s*:/m, 'litellm'],
  [/"(configs|virtual_keys?|override_params)"\s*:|"strategy"\s*:\s*\{\s*"mode"/, 'portkey'],
  [/^\s*(routers|ai-gateway|load-balance)\s*:/m, 'helicone'],
  [/"(presets|models|provider)"\s*:/, 'openrouter'],
]

/** The source that a text looks like, or null. */
export function guessSource(text: string): Source | null {
  const start = text.slice(0, 20_000)
  return GUESSES.find(([pattern]) => pattern.test(start))?.[1] ?? null
}
