/** Tables as CSV, out and in (RFC 4180). */

export type Cell = string | number | boolean | null | undefined

/** A header line and a line for each row. */
export function toCsv(header: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [header, ...rows].map((row) => row.map(written).join(',')).join('\r\n') + '\r\n'
}

/** Text that a spreadsheet would take for a formula is kept from being one. */
function written(cell: Cell): string {
  if (cell == null) return ''
  const text = typeof cell === 'string' && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : String(cell)
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export interface Table {
  header: string[]
  /** Each with the line on which it begins, counted from 1. */
  rows: { line: number; cells: string[] }[]
}

/** Reads a table whose first line names the columns. Quotes may hold commas, line breaks and doubled quotes. */
export function parseCsv(text: string): Table {
  const rows: Table['rows'] = []
  let cells: string[] = []
  let cell = ''
  let quoted = false
  let line = 1
  let began = 1
  const endRow = (): void => {
    cells.push(cell)
    if (cells.length > 1 || cells[0] !== '') rows.push({ line: began, cells })
    cells = []
    cell = ''
    began = line
  }
  const input = text.startsWith('\uFEFF') ? text.slice(1) : text
  for (let at = 0; at < input.length; at++) {
    const char = input[at] ?? ''
    if (char === '\n') line += 1
    if (quoted) {
      if (char !== '"') cell += char
      else if (input[at + 1] === '"') {
        cell += '"'
        at += 1
      } else quoted = false
    } else if (char === '"' && cell === '') quoted = true
    else if (char === ',') {
      cells.push(cell)
      cell = ''
    } else if (char === '\n') endRow()
    else if (char !== '\r' || input[at + 1] !== '\n') cell += char
  }
  endRow()
  const [first, ...rest] = rows
  return { header: first?.cells ?? [], rows: rest }
}
