/**
 * Parses files of test cases before upload, to preview rows, map columns and report errors early. The server validates
 * the upload again.
 */
import { isRecord } from '../api/error'
import { parseCsv } from './csv'

export type FileFormat = 'csv' | 'json' | 'ndjson'
export const FILE_TYPES: Record<FileFormat, string> = { csv: 'text/csv', json: 'application/json', ndjson: 'application/x-ndjson' }

export interface InvalidRow {
  line: number
  message: string
}

export interface FileRow {
  line: number
  /** Values by column name. */
  cells: Record<string, unknown>
}

export interface LoadedFile {
  format: FileFormat
  columns: string[]
  rows: FileRow[]
  invalid: InvalidRow[]
}

/** Maps columns to case fields; all other columns become metadata. */
export interface ColumnMapping {
  input: string
  expected: string
}

export function detectFormat(name: string, text: string): FileFormat {
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
  const invalid = rows.filter((row) => row.cells.length !== header.length).map((row) => ({ line: row.line, message: `has ${row.cells.length} cells, the header has ${header.length}` }))
  return { format: 'csv', columns: header, invalid, rows: rows.map((row) => ({ line: row.line, cells: Object.fromEntries(header.map((name, at) => [name, row.cells[at] ?? ''])) })) }
}

function fromLines(text: string): LoadedFile {
  const rows: FileRow[] = []
  const invalid: InvalidRow[] = []
  text.split(/\r?\n/).forEach((written, at) => {
    if (written.trim() === '') return
    const line = at + 1
    try {
      addRow({ line, value: JSON.parse(written) as unknown }, rows, invalid)
    } catch {
      invalid.push({ line, message: 'is not valid JSON' })
    }
  })
  return { format: 'ndjson', columns: collectColumns(rows), rows, invalid }
}

function fromJson(text: string): LoadedFile {
  const rows: FileRow[] = []
  const invalid: InvalidRow[] = []
  try {
    const document: unknown = JSON.parse(text)
    const cases = Array.isArray(document) ? document : isRecord(document) && Array.isArray(document['cases']) ? document['cases'] : null
    if (!cases) invalid.push({ line: 1, message: 'must be an array of cases, or {"cases": […]}' })
    cases?.forEach((value: unknown, at) => addRow({ line: at + 1, value }, rows, invalid))
  } catch (error) {
    invalid.push({ line: 1, message: error instanceof Error ? error.message : 'is not valid JSON' })
  }
  return { format: 'json', columns: collectColumns(rows), rows, invalid }
}

function addRow({ line, value }: { line: number; value: unknown }, rows: FileRow[], invalid: InvalidRow[]): void {
  if (isRecord(value)) rows.push({ line, cells: value })
  else invalid.push({ line, message: 'must be an object with an input' })
}

function collectColumns(rows: readonly FileRow[]): string[] {
  return [...new Set(rows.slice(0, 200).flatMap((row) => Object.keys(row.cells)))]
}

/** Guesses the mapping from common column names. */
export function guessMapping(columns: readonly string[]): ColumnMapping {
  const find = (...names: string[]) => names.flatMap((name) => columns.filter((column) => column.toLowerCase() === name))[0]
  return {
    input: find('input', 'question', 'prompt', 'query', 'text') ?? columns[0] ?? '',
    expected: find('expected', 'answer', 'output', 'reference', 'ideal') ?? '',
  }
}

/** True if the columns already have the names that the server expects, so the file is uploaded unchanged. */
export function needsNoMapping(file: LoadedFile, mapping: ColumnMapping): boolean {
  return mapping.input === 'input' && (mapping.expected === 'expected' || (mapping.expected === '' && !file.columns.includes('expected')))
}

/** Converts rows to NDJSON with the field names that the server expects, one line per row. */
export function mapRows(file: LoadedFile, mapping: ColumnMapping): string {
  return file.rows
    .map(({ cells }) => {
      const { [mapping.input]: input, metadata, ...rest } = file.format === 'csv' ? parseCells(cells) : cells
      const expected = mapping.expected === '' ? undefined : rest[mapping.expected]
      if (mapping.expected !== '') delete rest[mapping.expected]
      const more = isRecord(metadata) ? { ...metadata, ...rest } : rest
      return JSON.stringify({ input, ...(expected !== undefined && expected !== '' && { expected }), ...(Object.keys(more).length > 0 && { metadata: more }) })
    })
    .join('\n')
}

/** Same rule as the server: a cell with a JSON object or array is parsed, any other cell is text. */
function parseCells(cells: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(cells).map(([name, cell]) => [name, typeof cell === 'string' && /^\s*[[{]/.test(cell) ? parseCell(cell) : cell]))
}

function parseCell(cell: string): unknown {
  try {
    return JSON.parse(cell)
  } catch {
    return cell
  }
}
