/** Names of eval runs: what was judged, so that runs can be told apart. */
import { isRecord } from '@/api/error'
import type { VersionChoice } from './promptVersions'

/** Longer values are named only. */
const MAX_WORD = 20

interface NamedRun {
  /** The model that answered, or null if stored outputs were judged. */
  target?: unknown
  dataset_id: string | null
  dataset_version: number | null
}

/** `gpt-4o-mini · support/answer-briefly v2 · Support questions v1`. */
export function runTitle(run: NamedRun, datasetName: string | undefined): string {
  return [...answeredBy(run), judgedOn(run, datasetName)].join(' · ')
}

/** The model, the prompt and the parameters of a run; empty if stored outputs were judged. */
export function answeredBy({ target }: Pick<NamedRun, 'target'>): string[] {
  if (!isRecord(target)) return []
  const prompt = isRecord(target['prompt']) ? target['prompt'] : null
  const version = typeof prompt?.['version'] === 'number' ? ` v${prompt['version']}` : ''
  return [String(target['model']), ...(prompt ? [`${String(prompt['namespace'])}/${String(prompt['slug'])}${version}`] : []), ...paramWords(isRecord(target['params']) ? target['params'] : {})]
}

/** Parameters in a few words: numbers and words with their values, others by name. */
export function paramWords(params: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(params).map(([name, value]) => (typeof value === 'number' || typeof value === 'boolean' || (typeof value === 'string' && value.length <= MAX_WORD) ? `${name} ${value}` : name))
}

/** What answers in a run. */
export interface RunTarget {
  provider: string
  model: string
  /** A version, a label, or null for the latest version. */
  prompt: { namespace: string; slug: string; version: VersionChoice } | null
  params: Record<string, unknown>
  /** Values of variables, used where an input has no field of the name. */
  variables: Record<string, string>
}

/** What answered in a run, to fill in the form of another one. */
export function targetOf({ target }: Pick<NamedRun, 'target'>): RunTarget | undefined {
  if (!isRecord(target)) return undefined
  const prompt = isRecord(target['prompt']) ? target['prompt'] : null
  const version = prompt?.['version']
  const variables = isRecord(prompt?.['variables']) ? prompt['variables'] : {}
  return {
    provider: String(target['provider']),
    model: String(target['model']),
    prompt: prompt && { namespace: String(prompt['namespace']), slug: String(prompt['slug']), version: typeof version === 'number' ? version : null },
    params: isRecord(target['params']) ? target['params'] : {},
    variables: Object.fromEntries(Object.entries(variables).map(([name, value]) => [name, String(value)])),
  }
}

export function judgedOn(run: NamedRun, datasetName: string | undefined): string {
  if (run.dataset_id === null) return 'logged requests'
  const name = datasetName ?? 'dataset'
  return run.dataset_version === null ? `${name} (working copy)` : `${name} v${run.dataset_version}`
}
