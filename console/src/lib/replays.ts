/** Names and comparisons of replays. */
import { isRecord } from '@/api/error'

/** What a replay changes: `openai/gpt-4o-mini · support/greeting v2 · temperature`. */
export function targetTitle(target: unknown): string {
  if (!isRecord(target)) return 'replay'
  const { provider, model, prompt, params } = target
  const where = [provider, model].filter((part) => typeof part === 'string').join('/')
  const text = isRecord(prompt) ? `${String(prompt['name'])} v${String(prompt['version'])}` : ''
  const changed = isRecord(params) ? Object.keys(params).join(', ') : ''
  return [where, text, changed].filter(Boolean).join(' · ') || 'replay'
}

export type Better = 'less' | 'more' | 'neither'

export interface Change {
  /** `+12.5%`, `−3`, or a dash if nothing can be said. */
  text: string
  tone: 'ok' | 'err' | 'muted'
}

/** The relative change from one value to another. From zero there is no percentage. */
export function relativeChange(before: number | null, after: number | null, better: Better): Change {
  if (before === null || after === null) return NO_CHANGE
  if (before === after) return { text: 'same', tone: 'muted' }
  const tone = toneOf(after - before, better)
  if (before === 0) return { text: after > 0 ? 'more' : 'less', tone }
  const share = (after - before) / Math.abs(before)
  const size = Math.abs(share) * 100
  return { text: `${share > 0 ? '+' : '−'}${size >= 1000 ? `${Math.round(size / 100)}×` : `${size.toFixed(size < 10 || (share < 0 && size > 99 && size < 100) ? 1 : 0)}%`}`, tone }
}

/** The change of a share, in percentage points. */
export function pointsChange(before: number | null, after: number | null): Change {
  if (before === null || after === null) return NO_CHANGE
  const points = (after - before) * 100
  if (Math.abs(points) < 0.05) return { text: 'same', tone: 'muted' }
  return { text: `${points > 0 ? '+' : '−'}${Math.abs(points).toFixed(1).replace(/\.0$/, '')} pts`, tone: toneOf(points, 'more') }
}

/** The change of a count. */
export function countChange(before: number, after: number, better: Better): Change {
  if (before === after) return { text: 'same', tone: 'muted' }
  return { text: `${after > before ? '+' : '−'}${Math.abs(after - before)}`, tone: toneOf(after - before, better) }
}

const NO_CHANGE: Change = { text: '–', tone: 'muted' }

function toneOf(difference: number, better: Better): Change['tone'] {
  if (better === 'neither') return 'muted'
  return difference > 0 === (better === 'more') ? 'ok' : 'err'
}

interface ScoredRow {
  state: string
  before: { status: number }
  after: { status: number } | null
  scores: readonly { before: { passed: boolean } | null; after: { passed: boolean } | null }[]
}

/** Whether a row of a replay regressed, improved or failed. A row can be several of them. */
export function rowMatches(row: ScoredRow, filter: 'lost' | 'gained' | 'errors'): boolean {
  if (filter === 'errors') return row.state === 'error' || (row.after !== null && row.after.status >= 400)
  return row.scores.some(({ before, after }) => before && after && before.passed !== after.passed && after.passed === (filter === 'gained'))
}

/** Log ids of a search parameter: whole numbers, each once. */
export function parseIds(text: string | undefined, max: number): number[] {
  const ids = (text ?? '').split(',').map(Number).filter((id) => Number.isSafeInteger(id) && id > 0)
  return [...new Set(ids)].slice(0, max)
}

/** A JSON object typed by the user; empty is no object. */
export function parseObject(text: string): { value: Record<string, unknown> | null; problem: string | null } {
  if (text.trim() === '') return { value: null, problem: null }
  try {
    const value: unknown = JSON.parse(text)
    if (isRecord(value)) return { value, problem: null }
  } catch {
    // Reported below.
  }
  return { value: null, problem: 'Must be a JSON object' }
}
