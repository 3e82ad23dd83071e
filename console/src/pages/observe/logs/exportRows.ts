/** Formats chosen rows as the API's export does: NDJSON, or CSV with the same columns. */
import type { LogRow } from '@/api/logs'
import { toCsv, type Cell } from '@/lib/csv'

export type ExportFormat = 'csv' | 'ndjson'

const CSV_COLUMNS: readonly (keyof LogRow)[] = [
  'id',
  'request_id',
  'created_at',
  'level',
  'source',
  'provider',
  'model',
  'method',
  'path',
  'status',
  'error_code',
  'stream',
  'latency_ms',
  'ttft_ms',
  'prompt_tokens',
  'completion_tokens',
  'cached_tokens',
  'reasoning_tokens',
  'total_tokens',
  'usage_estimated',
  'cost_usd',
  'cache',
  'cache_marks',
  'queued_ms',
  'key_id',
  'app_id',
  'team_id',
  'user',
  'session_id',
  'prompt',
  'prompt_version',
  'compat',
  'operation',
  'tool',
  'attempts',
  'limits',
  'metadata',
  'preview',
  'request_stored',
  'response_stored',
]

export function formatRows(rows: readonly LogRow[], format: ExportFormat): string {
  if (format === 'ndjson') return rows.map((row) => `${JSON.stringify(row)}\n`).join('')
  return toCsv(CSV_COLUMNS, rows.map((row) => CSV_COLUMNS.map((name) => cell(row[name]))))
}

function cell(value: unknown): Cell {
  return value === null || value === undefined || typeof value === 'string' || typeof value === 'number' ? value : JSON.stringify(value)
}
