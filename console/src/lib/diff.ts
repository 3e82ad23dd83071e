/** Two texts side by side: lines that stayed, went and came, and inside changed lines the words that did. */
import { diffLines, diffWordsWithSpace } from 'diff'

export interface Piece {
  text: string
  /** Not in the other text. */
  changed: boolean
}

export interface Side {
  /** Counted from 1. */
  number: number
  pieces: Piece[]
}

/** A row of the split view. Same on both sides, on one side only, or changed from one to the other. */
export interface DiffRow {
  kind: 'same' | 'removed' | 'added' | 'changed'
  left: Side | null
  right: Side | null
}

export interface DiffStats {
  added: number
  removed: number
}

export function diffRows(before: string, after: string): DiffRow[] {
  const rows: DiffRow[] = []
  let left = 1
  let right = 1
  const parts = diffLines(before, after)
  for (let at = 0; at < parts.length; at++) {
    const part = parts[at]
    if (!part) continue
    const lines = linesOf(part.value)
    if (!part.added && !part.removed) {
      for (const text of lines) rows.push({ kind: 'same', left: plain(left++, text), right: plain(right++, text) })
      continue
    }
    const other = parts[at + 1]
    if (part.removed && other?.added) {
      const came = linesOf(other.value)
      for (let line = 0; line < Math.max(lines.length, came.length); line++) {
        const was = lines[line]
        const is = came[line]
        if (was !== undefined && is !== undefined) rows.push(changedRow(left++, was, right++, is))
        else if (was !== undefined) rows.push({ kind: 'removed', left: whole(left++, was), right: null })
        else if (is !== undefined) rows.push({ kind: 'added', left: null, right: whole(right++, is) })
      }
      at += 1
    } else if (part.removed) {
      for (const text of lines) rows.push({ kind: 'removed', left: whole(left++, text), right: null })
    } else {
      for (const text of lines) rows.push({ kind: 'added', left: null, right: whole(right++, text) })
    }
  }
  return rows
}

/** The rows of the unified view: within each block of changes first what went, then what came. */
export function unifiedRows(rows: readonly DiffRow[]): DiffRow[] {
  const result: DiffRow[] = []
  let came: DiffRow[] = []
  for (const row of rows) {
    if (row.kind === 'same') {
      result.push(...came, row)
      came = []
      continue
    }
    if (row.left) result.push({ kind: 'removed', left: row.left, right: null })
    if (row.right) came.push({ kind: 'added', left: null, right: row.right })
  }
  return [...result, ...came]
}

/** Long stretches that stayed the same are left out, but for `context` rows around each change. */
export function foldSame(rows: readonly DiffRow[], context = 3): (DiffRow | { kind: 'hidden'; count: number })[] {
  const shown = new Set<number>()
  rows.forEach((row, at) => {
    if (row.kind === 'same') return
    for (let near = at - context; near <= at + context; near++) shown.add(near)
  })
  const result: (DiffRow | { kind: 'hidden'; count: number })[] = []
  let hidden = 0
  const close = (): void => {
    if (hidden > 0) result.push({ kind: 'hidden', count: hidden })
    hidden = 0
  }
  rows.forEach((row, at) => {
    if (!shown.has(at)) {
      hidden += 1
      return
    }
    close()
    result.push(row)
  })
  close()
  return result
}

export function diffStats(rows: readonly DiffRow[]): DiffStats {
  const changed = rows.filter((row) => row.kind !== 'same')
  return {
    added: changed.filter((row) => row.right).length,
    removed: changed.filter((row) => row.left).length,
  }
}

function changedRow(left: number, was: string, right: number, is: string): DiffRow {
  const words = diffWordsWithSpace(was, is)
  const side = (number: number, other: 'added' | 'removed', mine: 'added' | 'removed'): Side => ({
    number,
    pieces: words.filter((word) => !word[other]).map((word) => ({ text: word.value, changed: word[mine] === true })),
  })
  return { kind: 'changed', left: side(left, 'added', 'removed'), right: side(right, 'removed', 'added') }
}

function plain(number: number, text: string): Side {
  return { number, pieces: [{ text, changed: false }] }
}

function whole(number: number, text: string): Side {
  return { number, pieces: [{ text, changed: true }] }
}

function linesOf(text: string): string[] {
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  return lines
}
