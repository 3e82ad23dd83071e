import { colorOf } from '@/charts/colors'
import type { LogRow } from '@/api/logs'
import { compact, duration, money, NO_VALUE, time, type Zone } from '@/lib/format'
import { HttpStatus } from '@/ui'
import type { GridColumn } from '@/ui/VirtualTable'

export interface ColumnContext {
  zone: Zone
  keyName(id: string): string
}

interface LogColumn extends GridColumn<LogRow> {
  /** Minimum table width in pixels for this column to be shown. */
  from: number
}

/** The columns that fit the width; the model column grows if the preview column is hidden. */
export function visibleColumns(columns: readonly LogColumn[], width: number, hidden: readonly string[]): LogColumn[] {
  const shown = columns.filter((column) => width >= column.from && !hidden.includes(column.key))
  return shown.some((column) => column.key === 'preview') ? shown : shown.map((column) => (column.key === 'model' ? { ...column, width: 'minmax(96px, 1fr)' } : column))
}

export function logColumns({ zone, keyName }: ColumnContext): LogColumn[] {
  return [
    { key: 'time', header: 'Time', width: '76px', from: 0, cell: (row) => <time dateTime={row.created_at} title={time(row.created_at, zone, 'full')} className="text-muted">{time(row.created_at, zone, 'time')}</time> },
    { key: 'status', header: 'Status', width: '72px', from: 0, cell: (row) => <HttpStatus status={row.status} code={row.error_code} short /> },
    { key: 'provider', header: 'Provider', width: '116px', from: 860, cell: (row) => <Provider row={row} /> },
    { key: 'model', header: 'Model', width: 'minmax(120px, 190px)', from: 0, cell: (row) => <code title={row.model ?? undefined}>{row.model ?? NO_VALUE}</code> },
    { key: 'preview', header: 'Said', width: 'minmax(140px, 1fr)', from: 600, cell: (row) => <span title={row.preview ?? undefined}>{row.preview ?? <span className="text-muted">{row.path}</span>}</span> },
    { key: 'latency', header: 'Latency', width: '76px', from: 0, number: true, cell: (row) => duration(row.latency_ms) },
    { key: 'ttft', header: 'First token', width: '84px', from: 980, number: true, cell: (row) => duration(row.ttft_ms) },
    { key: 'tokens', header: 'Tokens', width: '100px', from: 720, number: true, cell: (row) => (row.total_tokens === null ? NO_VALUE : `${compact(row.prompt_tokens)} → ${compact(row.completion_tokens)}`) },
    { key: 'cost', header: 'Cost', width: '84px', from: 480, number: true, cell: (row) => money(row.cost_usd) },
    { key: 'cache', header: 'Cache', width: '64px', from: 1400, cell: (row) => row.cache?.toLowerCase() ?? '' },
    { key: 'key', header: 'Key', width: '120px', from: 1180, cell: (row) => (row.key_id ? keyName(row.key_id) : <span className="text-muted">{row.source === 'api' ? 'console' : NO_VALUE}</span>) },
    { key: 'user', header: 'User', width: '110px', from: 1400, cell: (row) => row.user ?? NO_VALUE },
    { key: 'session', header: 'Session', width: '150px', from: 1520, cell: (row) => <code className="text-muted">{row.session_id ?? NO_VALUE}</code> },
  ]
}

function Provider({ row }: { row: LogRow }) {
  return (
    <span className="inline-flex items-center gap-1.5">
      <span className="size-2 shrink-0 rounded-[2px]" style={{ background: colorOf(row.provider) }} aria-hidden />
      {row.provider}
      {row.attempts.length > 1 && (
        <span className="text-warn" title={`${row.attempts.length} attempts`}>
          ×{row.attempts.length}
        </span>
      )}
    </span>
  )
}
