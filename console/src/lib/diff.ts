/** Line diff of two texts, with a word diff inside changed lines. */
import { diffLines, diffWordsWithSpace } from 'diff'

export interface Piece {
  text: string
  /** True if the other text does not contain this piece. */
  changed: boolean
}

export interface Side {
  /** 1-based. */
  number: number
  pieces: Piece[]
}

/** One row of the split view. */
export interface DiffRow {
  kind: 'same' | 'removed' | 'added' | 'changed'
  left: Side | null
  right: Side | null
}

export interface DiffStats {
  added: number
  removed: number
}

/** The time of a comparison grows with the number of edits; beyond these, all of a text counts as changed. */
const MAX_LINE_EDITS = 1_000
const MAX_WORD_EDITS = 200

export function diffRows(before: string, after: string): DiffRow[] {
  const rows: DiffRow[] = []
  let left = 1
  let right = 1
  const parts = diffLines(before, after, { maxEditLength: MAX_LINE_EDITS }) ?? wholeText(before, after)
  for (let at = 0; at < parts.length; at++) {
    const part = parts[at]
    if (!part) continue
    const lines = splitLines(part.value)
    if (!part.added && !part.removed) {
      for (const text of lines) rows.push({ kind: 'same', left: unchangedSide(left++, text), right: unchangedSide(right++, text) })
      continue
    }
    const other = parts[at + 1]
    if (part.removed && other?.added) {
      const added = splitLines(other.value)
      for (let line = 0; line < Math.max(lines.length, added.length); line++) {
        const oldLine = lines[line]
        const newLine = added[line]
        if (oldLine !== undefined && newLine !== undefined) rows.push(changedRow(left++, oldLine, right++, newLine))
        else if (oldLine !== undefined) rows.push({ kind: 'removed', left: changedSide(left++, oldLine), right: null })
        else if (newLine !== undefined) rows.push({ kind: 'added', left: null, right: changedSide(right++, newLine) })
      }
      at += 1
    } else if (part.removed) {
      for (const text of lines) rows.push({ kind: 'removed', left: changedSide(left++, text), right: null })
    } else {
      for (const text of lines) rows.push({ kind: 'added', left: null, right: changedSide(right++, text) })
    }
  }
  return rows
}

/** Rows of the unified view: removed lines before added lines within each block of changes. */
export function unifiedRows(rows: readonly DiffRow[]): DiffRow[] {
  const result: DiffRow[] = []
  let added: DiffRow[] = []
  for (const row of rows) {
    if (row.kind === 'same') {
      result.push(...added, row)
      added = []
      continue
    }
    if (row.left) result.push({ kind: 'removed', left: row.left, right: null })
    if (row.right) added.push({ kind: 'added', left: null, right: row.right })
  }
  return [...result, ...added]
}

/** Collapses unchanged rows except for `context` rows around each change. */
export function collapseUnchanged(rows: readonly DiffRow[], context = 3): (DiffRow | { kind: 'hidden'; count: number })[] {
  const shown = new Set<number>()
  rows.forEach((row, at) => {
    if (row.kind === 'same') return
    for (let near = at - context; near <= at + context; near++) shown.add(near)
  })
  const result: (DiffRow | { kind: 'hidden'; count: number })[] = []
  let hidden = 0
  const flushHidden = (): void => {
    if (hidden > 0) result.push({ kind: 'hidden', count: hidden })
    hidden = 0
  }
  rows.forEach((row, at) => {
    if (!shown.has(at)) {
      hidden += 1
      return
    }
    flushHidden()
    result.push(row)
  })
  flushHidden()
  return result
}

export function diffStats(rows: readonly DiffRow[]): DiffStats {
  const changed = rows.filter((row) => row.kind !== 'same')
  return {
    added: changed.filter((row) => row.right).length,
    removed: changed.filter((row) => row.left).length,
  }
}

function changedRow(left: number, oldLine: string, right: number, newLine: string): DiffRow {
  const words = diffWordsWithSpace(oldLine, newLine, { maxEditLength: MAX_WORD_EDITS }) ?? wholeText(oldLine, newLine)
  const side = (number: number, other: 'added' | 'removed', mine: 'added' | 'removed'): Side => ({
    number,
    pieces: words.filter((word) => !word[other]).map((word) => ({ text: word.value, changed: word[mine] === true })),
  })
  return { kind: 'changed', left: side(left, 'added', 'removed'), right: side(right, 'removed', 'added') }
}

function wholeText(before: string, after: string) {
  return [
    { value: before, added: false, removed: true },
    { value: after, added: true, removed: false },
  ]
}

function unchangedSide(number: number, text: string): Side {
  return { number, pieces: [{ text, changed: false }] }
}

function changedSide(number: number, text: string): Side {
  return { number, pieces: [{ text, changed: true }] }
}

function splitLines(text: string): string[] {
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  return lines
}
