/** Downloads all rows that match a query, page by page, as CSV or NDJSON. */
import { client, unwrap } from '@/api/client'
import { ApiError } from '@/api/error'
import type { LogRow } from '@/api/logs'
import { failureOf } from '@/lib/failure'
import { toCsv, type Cell } from '@/lib/csv'

export type ExportFormat = 'csv' | 'ndjson'

export interface RowQuery {
  query?: string | undefined
  sort?: string | undefined
  from: string
  to?: string | undefined
}

/** More rows would not fit into the memory of a tab. */
export const MAX_EXPORT_ROWS = 100_000
const PAGE_SIZE = 200
const MAX_RETRIES = 5

const CSV_COLUMNS: readonly [string, (row: LogRow) => Cell][] = [
  ['id', (row) => row.id],
  ['time', (row) => row.created_at],
  ['status', (row) => row.status],
  ['error_code', (row) => row.error_code],
  ['error', (row) => failureOf(row)?.message],
  ['source', (row) => row.source],
  ['provider', (row) => row.provider],
  ['model', (row) => row.model],
  ['method', (row) => row.method],
  ['path', (row) => row.path],
  ['latency_ms', (row) => row.latency_ms],
  ['ttft_ms', (row) => row.ttft_ms],
  ['input_tokens', (row) => row.prompt_tokens],
  ['output_tokens', (row) => row.completion_tokens],
  ['cached_tokens', (row) => row.cached_tokens],
  ['reasoning_tokens', (row) => row.reasoning_tokens],
  ['cost_usd', (row) => row.cost_usd],
  ['cache', (row) => row.cache],
  ['attempts', (row) => row.attempts.length],
  ['key_id', (row) => row.key_id],
  ['app_id', (row) => row.app_id],
  ['team_id', (row) => row.team_id],
  ['user', (row) => row.user],
  ['session_id', (row) => row.session_id],
  ['prompt', (row) => row.prompt],
  ['prompt_version', (row) => row.prompt_version],
  ['request_id', (row) => row.request_id],
  ['metadata', (row) => JSON.stringify(row.metadata)],
  ['input', (row) => row.preview],
]

/** Rows as text; only the first part of a CSV file has the header. */
export function formatRows(rows: readonly LogRow[], format: ExportFormat, isFirst: boolean): string {
  if (format === 'ndjson') return rows.map((row) => `${JSON.stringify(row)}\n`).join('')
  const csv = toCsv(CSV_COLUMNS.map(([name]) => name), rows.map((row) => CSV_COLUMNS.map(([, value]) => value(row))))
  return isFirst ? csv : csv.slice(csv.indexOf('\r\n') + 2)
}

export interface ExportResult {
  parts: string[]
  rows: number
  /** Why there are more rows than these, or null. */
  incomplete: string | null
}

interface ExportRun {
  format: ExportFormat
  signal: AbortSignal
  onProgress(rows: number): void
  maxRows?: number
}

export async function collectRows(query: RowQuery, { format, signal, onProgress, maxRows = MAX_EXPORT_ROWS }: ExportRun): Promise<ExportResult> {
  const parts: string[] = []
  let rows = 0
  let cursor: string | null = null
  for (;;) {
    const page = await fetchPage(query, cursor, signal)
    const taken = page.logs.slice(0, maxRows - rows)
    if (taken.length > 0 || parts.length === 0) parts.push(formatRows(taken, format, parts.length === 0))
    rows += taken.length
    onProgress(rows)
    cursor = page.next_cursor
    if (cursor === null) return { parts, rows, incomplete: page.partial ? `Only rows since ${page.scanned_to ?? 'the start of the search'} were looked at.` : null }
    if (rows >= maxRows) return { parts, rows, incomplete: `A file has at most ${maxRows.toLocaleString('en-US')} rows.` }
  }
}

async function fetchPage(query: RowQuery, cursor: string | null, signal: AbortSignal) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await unwrap(client.GET('/api/v1/logs', { params: { query: { ...query, limit: PAGE_SIZE, ...(cursor !== null && { cursor }) } }, signal }))
    } catch (error) {
      // A limit on calls to the API slows the export down, but does not end it.
      if (!(error instanceof ApiError) || error.status !== 429 || attempt >= MAX_RETRIES) throw error
      await pause((error.retryAfter ?? 2 ** attempt) * 1000, signal)
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      fail(new DOMException('The export was cancelled', 'AbortError'))
    })
  })
}
