import type { LogRow } from '@/api/logs'
import { failureOf } from '@/lib/failure'
import { compact, cost, duration, NO_VALUE, time, type Zone } from '@/lib/format'
import type { LogsPrefs } from '@/lib/prefs'
import { Badge, HttpStatus } from '@/ui'
import { Marked } from '@/ui/Marked'
import type { GridColumn } from '@/ui/VirtualTable'
import { Output } from './Output'

export interface ColumnContext {
  zone: Zone
  /** The range is longer than a day: times need a date. */
  withDate: boolean
  /** The table is as narrow as on a phone. */
  isNarrow: boolean
  /** The window is as narrow as a phone, where cells have two lines. */
  isPhone: boolean
  keyName(id: string): string
  appName(id: string): string
  teamName(id: string): string
  providerColor(provider: string): string
  /** The first row of a day, where the list has several days. */
  isFirstOfDay(row: LogRow): boolean
}

export interface LogColumn extends GridColumn<LogRow> {
  /** Table width in pixels from which the column is shown unless the user decides; null: only if chosen. */
  from: number | null
}

/** Width of the table in pixels below which a row has the input in a second line. */
export const NARROW = 560

/** The second line of a row in a narrow table, unless the input is a column. */
export function inputLine(shown: readonly LogColumn[], width: number) {
  return width < NARROW && !shown.some((column) => column.key === 'preview') ? { header: 'Input', cell: (row: LogRow) => <Input row={row} /> } : undefined
}

/** The columns that the user chose, and the ones that fit the width where nothing was chosen. */
export function visibleColumns(columns: readonly LogColumn[], width: number, { columns: chosen, widths }: Pick<LogsPrefs, 'columns' | 'widths'>): LogColumn[] {
  const shown = columns.filter((column) => isShown(column, width, chosen)).map((column) => (widths[column.key] === undefined ? column : { ...column, width: `${widths[column.key]}px` }))
  if (shown.some((column) => column.width.includes('fr'))) return shown
  // One column takes the rest of the width.
  const last = shown.findLast((column) => column.key === 'preview' || column.key === 'model') ?? shown.at(-1)
  return shown.map((column) => (column === last ? { ...column, width: `minmax(${Number.parseInt(column.width.replace('minmax(', ''), 10) || 96}px, 1fr)` } : column))
}

export function isShown(column: LogColumn, width: number, chosen: LogsPrefs['columns']): boolean {
  return chosen[column.key] ?? (column.from !== null && width >= column.from)
}

export function logColumns({ zone, withDate, isNarrow, isPhone, keyName, appName, teamName, providerColor, isFirstOfDay }: ColumnContext): LogColumn[] {
  const at = (row: LogRow) => (withDate ? `${time(row.created_at, zone, 'day')} ${time(row.created_at, zone, isNarrow ? 'minute' : 'time')}` : time(row.created_at, zone, 'time'))
  return [
    // On a phone the time is below the day, which leaves room for the name of the model.
    { key: 'time', header: 'Time', width: !withDate ? '76px' : isPhone ? '64px' : isNarrow ? '104px' : '132px', from: 0, sort: 'time', cell: (row) => <Time row={row} text={at(row)} title={time(row.created_at, zone, 'full')} first={isFirstOfDay(row)} /> },
    { key: 'status', header: 'Status', width: '64px', from: 0, cell: (row) => <HttpStatus status={row.status} code={row.error_code} short /> },
    { key: 'provider', header: 'Provider', width: '116px', from: 860, cell: (row) => <Provider row={row} color={providerColor(row.provider)} /> },
    { key: 'model', header: 'Model', width: isNarrow ? 'minmax(88px, 1fr)' : '150px', from: 0, cell: (row) => <code title={row.model ?? undefined}>{row.model ?? NO_VALUE}</code> },
    { key: 'preview', header: 'Input', width: 'minmax(140px, 1fr)', from: 560, cell: (row) => <Input row={row} /> },
    { key: 'output', header: 'Output', width: '240px', from: null, cell: (row) => <Output row={row} /> },
    { key: 'error', header: 'Error', width: '220px', from: null, cell: (row) => <Failed row={row} /> },
    { key: 'latency', header: 'Latency', width: '82px', from: 0, number: true, sort: 'latency', cell: (row) => duration(row.latency_ms) },
    { key: 'ttft', header: 'First token', width: '88px', from: 1120, number: true, cell: (row) => duration(row.ttft_ms) },
    { key: 'tokens', header: 'Tokens', width: '112px', from: 760, number: true, sort: 'tokens', cell: (row) => (row.total_tokens === null ? NO_VALUE : `${compact(row.prompt_tokens)} → ${compact(row.completion_tokens)}`) },
    { key: 'cost', header: 'Cost', width: '92px', from: 480, number: true, sort: 'cost', cell: (row) => <Cost row={row} /> },
    { key: 'cache', header: 'Cache', width: '72px', from: 1400, cell: (row) => (row.cache === 'hit' ? <Badge tone="accent">hit</Badge> : (row.cache?.toLowerCase() ?? '')) },
    { key: 'key', header: 'Key', width: '120px', from: 1240, cell: (row) => (row.key_id ? keyName(row.key_id) : <span className="text-muted">{row.source === 'api' ? 'console' : NO_VALUE}</span>) },
    { key: 'user', header: 'User', width: '110px', from: 1400, cell: (row) => row.user ?? NO_VALUE },
    { key: 'app', header: 'Application', width: '130px', from: null, cell: (row) => (row.app_id ? appName(row.app_id) : NO_VALUE) },
    { key: 'team', header: 'Team', width: '120px', from: null, cell: (row) => (row.team_id ? teamName(row.team_id) : NO_VALUE) },
    { key: 'source', header: 'Source', width: '84px', from: null, cell: (row) => row.source },
    { key: 'tool', header: 'Tool', width: '150px', from: null, cell: (row) => (row.tool ? <code title={row.tool}>{row.tool}</code> : NO_VALUE) },
    { key: 'attempts', header: 'Attempts', width: '80px', from: null, number: true, cell: (row) => <Attempts row={row} /> },
    { key: 'session', header: 'Session', width: '150px', from: 1520, cell: (row) => <code className="text-muted">{row.session_id ?? NO_VALUE}</code> },
    { key: 'prompt', header: 'Prompt', width: '160px', from: null, cell: (row) => (row.prompt ? <code>{row.prompt}{row.prompt_version === null ? '' : `@${row.prompt_version}`}</code> : NO_VALUE) },
    { key: 'request', header: 'Request id', width: '250px', from: null, cell: (row) => <code className="text-muted" title={row.request_id}>{row.request_id}</code> },
  ]
}

/** A line over the whole row divides days. */
function Time({ row, text, title, first }: { row: LogRow; text: string; title: string; first: boolean }) {
  return (
    <time dateTime={row.created_at} title={title} className={first ? 'font-medium' : 'text-muted'}>
      {first && <span className="pointer-events-none absolute inset-x-0 top-0 border-t-2 border-line-strong" aria-hidden />}
      {text}
    </time>
  )
}

function Attempts({ row }: { row: LogRow }) {
  const failed = row.attempts.filter((attempt) => attempt.error !== null).length
  return <span className={row.attempts.length > 1 ? 'text-warn' : undefined} title={failed > 0 ? `${failed} failed` : undefined}>{row.attempts.length}</span>
}

function Provider({ row, color }: { row: LogRow; color: string }) {
  return (
    <span className="inline-flex items-center gap-1.5">
      <span className="size-2 shrink-0 rounded-[2px]" style={{ background: color }} aria-hidden />
      {row.provider}
      {row.attempts.length > 1 && (
        <span className="text-warn" title={`${row.attempts.length} attempts`}>
          ×{row.attempts.length}
        </span>
      )}
    </span>
  )
}

/** The last user text; for a failed request, the reason before it. */
function Input({ row }: { row: LogRow }) {
  const failure = failureOf(row)
  const text = row.preview
  return (
    <span title={failure ? `${failure.message}\n${text ?? ''}` : (text ?? undefined)}>
      {row.cache === 'hit' && <span className="mr-1.5 rounded-full bg-accent-soft px-1.5 text-xs text-accent">cached</span>}
      {failure && <span className="mr-2 text-err">{failure.message}</span>}
      {text === null ? <span className="text-muted">{row.path}</span> : <Marked text={text} />}
    </span>
  )
}

function Failed({ row }: { row: LogRow }) {
  const failure = failureOf(row)
  return failure ? <span className="text-err" title={failure.message}>{failure.message}</span> : ''
}

/** Nothing was used by a call without tokens, so it has no cost; a missing price is said. */
function Cost({ row }: { row: LogRow }) {
  if (row.cost_usd !== null) return <span title={`$${row.cost_usd}`}>{cost(row.cost_usd)}</span>
  return row.total_tokens === null ? NO_VALUE : <span className="text-muted" title="There is no price for this model">no price</span>
}
