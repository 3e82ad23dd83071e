/**
 * Setups of the latest runs, kept in this browser: the server's history has the messages as they were sent, not the
 * prompts and variables that they came from. Sign-out removes them.
 */
import { DRAFT_KEY_PREFIX, getSession } from '@/api/session'
import type { Setup } from './setup'

export interface SentSetup {
  setup: Setup
  /** Id in the history by column id. Columns of one comparison share it. */
  runs: Readonly<Record<number, string>>
}

const MAX_KEPT = 30
/** Setups with images are too large to keep many of them. */
const MAX_CHARS = 40_000

/** Adds a setup, or replaces the one of the same start, newest first. */
export function addSent(kept: readonly SentSetup[], sent: SentSetup): SentSetup[] {
  const ids = Object.values(sent.runs)
  if (ids.length === 0 || JSON.stringify(sent).length > MAX_CHARS) return [...kept]
  return [sent, ...kept.filter((one) => !Object.values(one.runs).some((id) => ids.includes(id)))].slice(0, MAX_KEPT)
}

/** Ids of the history that one start has, each with its columns in the order of the comparison. */
export function columnsById({ setup, runs }: SentSetup): [string, number[]][] {
  const groups = new Map<string, number[]>()
  for (const { id } of setup.columns) {
    const run = runs[id]
    if (run !== undefined) groups.set(run, [...(groups.get(run) ?? []), id])
  }
  return [...groups]
}

export function keepSent(sent: SentSetup): void {
  try {
    localStorage.setItem(storageKey(), JSON.stringify(addSent(load(), sent)))
  } catch {
    // The storage is full: the history still has what was sent.
  }
}

export function findSent(id: string): SentSetup | undefined {
  return load().find((one) => Object.values(one.runs).includes(id))
}

function storageKey(): string {
  const session = getSession()
  return `${DRAFT_KEY_PREFIX}${session?.userId}.${session?.orgId}.playground.sent`
}

function load(): SentSetup[] {
  try {
    return JSON.parse(localStorage.getItem(storageKey()) ?? '[]') as SentSetup[]
  } catch {
    return []
  }
}
