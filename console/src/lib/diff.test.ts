import { expect, it } from 'vitest'
import { type DiffRow, diffRows, diffStats, collapseUnchanged, unifiedRows } from './diff'

const side = (row: DiffRow, name: 'left' | 'right'): string | null => row[name]?.pieces.map((piece) => piece.text).join('') ?? null

it('pairs changed lines and marks the words that differ', () => {
  const rows = diffRows('one\nthe quick fox\nthree\n', 'one\nthe slow fox\nthree\nfour\n')
  expect(rows.map((row) => row.kind)).toEqual(['same', 'changed', 'same', 'added'])
  const changed = rows[1]
  expect(changed?.left?.pieces.filter((piece) => piece.changed)).toEqual([{ text: 'quick', changed: true }])
  expect(changed?.right?.pieces.filter((piece) => piece.changed)).toEqual([{ text: 'slow', changed: true }])
  expect(rows[3]?.right?.number).toBe(4)
  expect(diffStats(rows)).toEqual({ added: 2, removed: 1 })
})

it('loses no line of either text', () => {
  const [before, after] = ['a\nb\nc\nd', 'x\nb\ny\nz\nd\ne']
  const rows = diffRows(before, after)
  expect(rows.map((row) => side(row, 'left')).filter((text) => text !== null).join('\n')).toBe(before)
  expect(rows.map((row) => side(row, 'right')).filter((text) => text !== null).join('\n')).toBe(after)
})

it('the unified view has removed lines before added ones', () => {
  const rows = unifiedRows(diffRows('a\nb\nsame\n', 'c\nd\nsame\n'))
  expect(rows.map((row) => `${row.kind} ${side(row, 'left') ?? side(row, 'right') ?? ''}`)).toEqual([
    'removed a',
    'removed b',
    'added c',
    'added d',
    'same same',
  ])
})

it('collapses unchanged lines except for the context of each change', () => {
  const lines = Array.from({ length: 20 }, (_, at) => `line ${at}`)
  const rows = diffRows(lines.join('\n'), lines.with(10, 'other').join('\n'))
  const folded = collapseUnchanged(rows, 2)
  expect(folded[0]).toEqual({ kind: 'hidden', count: 8 })
  expect(folded.at(-1)).toEqual({ kind: 'hidden', count: 7 })
  expect(folded).toHaveLength(7)
  expect(collapseUnchanged(diffRows('a', 'a'))).toEqual([{ kind: 'hidden', count: 1 }])
})

it('compares very different texts in bounded steps', () => {
  const words = (prefix: string) => Array.from({ length: 5_000 }, (_, at) => `${prefix}${at}`).join(' ')
  const [row] = diffRows(words('a'), words('b'))
  expect(row?.left?.pieces).toEqual([{ text: words('a'), changed: true }])
  const lines = (prefix: string) => Array.from({ length: 1_500 }, (_, at) => `${prefix}${at}`).join('\n')
  expect(diffStats(diffRows(lines('a'), lines('b')))).toEqual({ added: 1_500, removed: 1_500 })
})
