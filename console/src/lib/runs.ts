/** Names of eval runs: what was judged, so that runs can be told apart. */
import { isRecord } from '@/api/error'

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

/** The model and the prompt of a run; empty if stored outputs were judged. */
export function answeredBy({ target }: Pick<NamedRun, 'target'>): string[] {
  if (!isRecord(target)) return []
  const prompt = isRecord(target['prompt']) ? target['prompt'] : null
  const version = typeof prompt?.['version'] === 'number' ? ` v${prompt['version']}` : ''
  return [String(target['model']), ...(prompt ? [`${String(prompt['namespace'])}/${String(prompt['slug'])}${version}`] : [])]
}

interface RunTarget {
  provider: string
  model: string
  prompt: { namespace: string; slug: string; version: number | null } | null
}

/** What answered in a run, to fill in the form of another one. */
export function targetOf({ target }: Pick<NamedRun, 'target'>): RunTarget | undefined {
  if (!isRecord(target)) return undefined
  const prompt = isRecord(target['prompt']) ? target['prompt'] : null
  const version = prompt?.['version']
  return {
    provider: String(target['provider']),
    model: String(target['model']),
    prompt: prompt && { namespace: String(prompt['namespace']), slug: String(prompt['slug']), version: typeof version === 'number' ? version : null },
  }
}

export function judgedOn(run: NamedRun, datasetName: string | undefined): string {
  if (run.dataset_id === null) return 'logged requests'
  const name = datasetName ?? 'dataset'
  return run.dataset_version === null ? `${name} (working copy)` : `${name} v${run.dataset_version}`
}
