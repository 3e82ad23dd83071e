/**
 * Files of test cases, looked at before they are sent: their rows, their columns, and what is wrong already. What counts
 * is what the server says; this only saves people a round trip and lets them say which column is which.
 */
import { isRecord } from '../api/error'
import { parseCsv } from './csv'

export type FileFormat = 'csv' | 'json' | 'ndjson'
export const FILE_TYPES: Record<FileFormat, string> = { csv: 'text/csv', json: 'application/json', ndjson: 'application/x-ndjson' }

export interface BadRow {
  line: number
  message: string
}

export interface FileRow {
  line: number
  /** By column. */
  cells: Record<string, unknown>
}

export interface LoadedFile {
  format: FileFormat
  columns: string[]
  rows: FileRow[]
  bad: BadRow[]
}

/** Which column becomes what; columns that are not named go into the metadata. */
export interface Mapping {
  input: string
  expected: string
}

export function formatOf(name: string, text: string): FileFormat {
  if (/\.csv$/i.test(name)) return 'csv'
  if (/\.(ndjson|jsonl)$/i.test(name)) return 'ndjson'
  if (/\.json$/i.test(name)) return 'json'
  const start = text.trimStart()
  if (start.startsWith('[')) return 'json'
  return start.startsWith('{') ? 'ndjson' : 'csv'
}

export function loadFile(text: string, format: FileFormat): LoadedFile {
  if (format === 'csv') return fromCsv(text)
  return format === 'ndjson' ? fromLines(text) : fromJson(text)
}

function fromCsv(text: string): LoadedFile {
  const { header, rows } = parseCsv(text)
  const bad = rows.filter((row) => row.cells.length !== header.length).map((row) => ({ line: row.line, message: `has ${row.cells.length} cells, the header has ${header.length}` }))
  return { format: 'csv', columns: header, bad, rows: rows.map((row) => ({ line: row.line, cells: Object.fromEntries(header.map((name, at) => [name, row.cells[at] ?? ''])) })) }
}

function fromLines(text: string): LoadedFile {
  const rows: FileRow[] = []
  const bad: BadRow[] = []
  text.split(/\r?\n/).forEach((written, at) => {
    if (written.trim() === '') return
    const line = at + 1
    try {
      take({ line, value: JSON.parse(written) as unknown }, rows, bad)
    } catch {
      bad.push({ line, message: 'is no JSON' })
    }
  })
  return { format: 'ndjson', columns: columnsOf(rows), rows, bad }
}

function fromJson(text: string): LoadedFile {
  const rows: FileRow[] = []
  const bad: BadRow[] = []
  try {
    const whole: unknown = JSON.parse(text)
    const cases = Array.isArray(whole) ? whole : isRecord(whole) && Array.isArray(whole['cases']) ? whole['cases'] : null
    if (!cases) bad.push({ line: 1, message: 'must be an array of cases, or {"cases": […]}' })
    cases?.forEach((value: unknown, at) => take({ line: at + 1, value }, rows, bad))
  } catch (error) {
    bad.push({ line: 1, message: error instanceof Error ? error.message : 'is no JSON' })
  }
  return { format: 'json', columns: columnsOf(rows), rows, bad }
}

function take({ line, value }: { line: number; value: unknown }, rows: FileRow[], bad: BadRow[]): void {
  if (isRecord(value)) rows.push({ line, cells: value })
  else bad.push({ line, message: 'must be an object with an input' })
}

function columnsOf(rows: readonly FileRow[]): string[] {
  return [...new Set(rows.slice(0, 200).flatMap((row) => Object.keys(row.cells)))]
}

/** What the columns are called suggests what they are. */
export function guessMapping(columns: readonly string[]): Mapping {
  const find = (...names: string[]) => names.flatMap((name) => columns.filter((column) => column.toLowerCase() === name))[0]
  return {
    input: find('input', 'question', 'prompt', 'query', 'text') ?? columns[0] ?? '',
    expected: find('expected', 'answer', 'output', 'reference', 'ideal') ?? '',
  }
}

/** The file is sent as it is where its columns have the names that the server knows. */
export function isPlain(file: LoadedFile, mapping: Mapping): boolean {
  return mapping.input === 'input' && (mapping.expected === 'expected' || (mapping.expected === '' && !file.columns.includes('expected')))
}

/** Rows as lines of JSON, under the names that the server knows. A line of the result is a row of the file. */
export function mapRows(file: LoadedFile, mapping: Mapping): string {
  return file.rows
    .map(({ cells }) => {
      const { [mapping.input]: input, metadata, ...rest } = file.format === 'csv' ? mapValues(cells) : cells
      const expected = mapping.expected === '' ? undefined : rest[mapping.expected]
      if (mapping.expected !== '') delete rest[mapping.expected]
      const more = isRecord(metadata) ? { ...metadata, ...rest } : rest
      return JSON.stringify({ input, ...(expected !== undefined && expected !== '' && { expected }), ...(Object.keys(more).length > 0 && { metadata: more }) })
    })
    .join('\n')
}

/** As the server reads a table: a cell that is a JSON object or array is one, any other is a text. */
function mapValues(cells: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(cells).map(([name, cell]) => [name, typeof cell === 'string' && /^\s*[[{]/.test(cell) ? parsed(cell) : cell]))
}

function parsed(cell: string): unknown {
  try {
    return JSON.parse(cell)
  } catch {
    return cell
  }
}
