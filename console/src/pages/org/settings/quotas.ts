/** Quotas of an organization in words, and how close each is to its limit. */
import type { Schemas } from '@/api/client'
import { bytes, integer } from '@/lib/format'

type Quota = Schemas['QuotaView']

export interface QuotaLine {
  name: string
  label: string
  used: string
  /** Null if unlimited. */
  limit: string | null
  /** Fraction of the limit; 0 if unlimited. */
  share: number
  state: 'ok' | 'near' | 'full'
  /** What happens at the limit, for a quota that is not refused with an error. */
  beyond: string | null
}

const WORDS: Readonly<Record<string, string>> = {
  keys: 'Keys',
  providers: 'Providers',
  models: 'Named models',
  prompts: 'Prompts',
  datasets: 'Datasets',
  evals: 'Evals',
  eval_runs: 'Eval runs',
  skills: 'Skills',
  webhooks: 'Webhooks',
  exports: 'Exports',
  teams: 'Teams',
  apps: 'Applications',
  members: 'Members',
  rows_per_day: 'Log rows today',
  body_bytes_per_day: 'Stored bodies today',
}
const BEYOND: Readonly<Record<string, string>> = {
  rows_per_day: 'Further requests today are counted in usage and budgets, but not stored in the logs.',
  body_bytes_per_day: 'Further log rows today are stored without request and response.',
}
const NEAR = 0.8

/** Known quotas in a fixed order, then those that this console does not know. */
export function quotaLines(quotas: Readonly<Record<string, Quota>>): QuotaLine[] {
  const known = Object.keys(WORDS)
  const names = [...known.filter((name) => name in quotas), ...Object.keys(quotas).filter((name) => !known.includes(name)).sort()]
  return names.flatMap((name) => {
    const quota = quotas[name]
    return quota ? [lineOf(name, quota)] : []
  })
}

function lineOf(name: string, { limit, used }: Quota): QuotaLine {
  const amount = name.includes('bytes') ? bytes : integer
  const share = limit === null ? 0 : limit === 0 ? 1 : used / limit
  return {
    name,
    label: WORDS[name] ?? name.replaceAll('_', ' '),
    used: amount(used),
    limit: limit === null ? null : amount(limit),
    share,
    state: share >= 1 ? 'full' : share >= NEAR ? 'near' : 'ok',
    beyond: BEYOND[name] ?? null,
  }
}
