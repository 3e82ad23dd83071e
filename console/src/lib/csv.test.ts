import { expect, it } from 'vitest'
import { parseCsv, toCsv } from './csv'

it('round-trips', () => {
  const rows = [['plain', 'with, comma', 'with "quotes"'], ['two\nlines', '', 'ü']]
  const table = parseCsv(toCsv(['a', 'b', 'c'], rows))
  expect(table.header).toEqual(['a', 'b', 'c'])
  expect(table.rows.map((row) => row.cells)).toEqual(rows)
})

it('escapes formulas in text cells but not numbers', () => {
  expect(toCsv(['x'], [['=1+1'], ['@cmd'], [-5], [null], [true]])).toBe("x\r\n'=1+1\r\n'@cmd\r\n-5\r\n\r\ntrue\r\n")
})

it('accepts any line ending, a byte order mark, empty lines and a missing final newline', () => {
  const table = parseCsv('\uFEFFinput,expected\r\n"a\r\nb",1\r\n\r\nc,2')
  expect(table.header).toEqual(['input', 'expected'])
  expect(table.rows).toEqual([
    { line: 2, cells: ['a\r\nb', '1'] },
    { line: 5, cells: ['c', '2'] },
  ])
})

it('reads an empty text as an empty table', () => {
  expect(parseCsv('')).toEqual({ header: [], rows: [] })
})
