/** CSV writer and parser (RFC 4180). */

export type Cell = string | number | boolean | null | undefined

export function toCsv(header: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [header, ...rows].map((row) => row.map(escapeCell).join(',')).join('\r\n') + '\r\n'
}

/** Quotes a cell and prefixes text that a spreadsheet would run as a formula (CSV injection). */
function escapeCell(cell: Cell): string {
  if (cell == null) return ''
  const text = typeof cell === 'string' && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : String(cell)
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export interface Table {
  header: string[]
  /** `line` is the 1-based line on which the row starts. */
  rows: { line: number; cells: string[] }[]
}

/** Parses CSV with a header line. Quoted cells may contain commas, line breaks and doubled quotes. */
export function parseCsv(text: string): Table {
  const rows: Table['rows'] = []
  let cells: string[] = []
  let cell = ''
  let quoted = false
  let line = 1
  let rowStart = 1
  const endRow = (): void => {
    cells.push(cell)
    if (cells.length > 1 || cells[0] !== '') rows.push({ line: rowStart, cells })
    cells = []
    cell = ''
    rowStart = line
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
