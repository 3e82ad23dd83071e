import { ArrowDown } from 'lucide-react'
import type { Schemas } from '@/api/client'
import { Meter } from '@/charts/Bars'
import { compact, duration, moneyColumn, percent } from '@/lib/format'
import { term } from '@/lib/query'
import { Section, Table, type Column } from '@/ui'
import { ranked } from './ranked'
import type { Group, RankField } from './search'

type Row = Schemas['BreakdownRow']

interface RankingProps {
  by: Group
  name: string
  rows: readonly Row[]
  /** The same as in the chart. */
  colorFor(key: string | null): string
  sort: RankField
  onSort(sort: RankField): void
  /** A further column after the costs. */
  extra?: Column<Row> | undefined
  onOpen(query: string): void
}

/** Groups ranked by spend, or by another column. Enter opens the logs of a group. */
export function Ranking({ by, name, rows, colorFor, sort, onSort, extra, onOpen }: RankingProps) {
  const cost = moneyColumn(rows.map((row) => row.cost_usd))
  const saved = moneyColumn(rows.map((row) => row.cache_saved_usd))
  const header = (field: RankField, text: string) => <SortButton text={text} active={sort === field} onClick={() => onSort(field)} />
  const total = rows.reduce((sum, row) => sum + (row.cost_usd ?? 0), 0)
  const columns: Column<Row>[] = [
    {
      key: 'name',
      header: name,
      className: 'name max-w-64 min-w-40',
      cell: (row) => (
        <div className="pb-1">
          <span className="name block truncate" title={row.key ?? undefined}>{by === 'model' || by === 'provider' ? <code>{row.name}</code> : row.name}</span>
          <Meter share={total === 0 ? 0 : (row.cost_usd ?? 0) / total} color={colorFor(row.key)} />
        </div>
      ),
    },
    { key: 'cost', header: header('cost', 'Cost'), number: true, cell: (row) => (row.cost_usd === null ? 'no price' : cost(row.cost_usd)) },
    ...(extra ? [extra] : []),
    { key: 'share', header: 'Share', number: true, from: extra ? '2xl' : 'sm', cell: (row) => percent(total === 0 ? null : (row.cost_usd ?? 0) / total) },
    { key: 'requests', header: header('requests', 'Requests'), number: true, ...(extra && { from: 'sm' as const }), cell: (row) => compact(row.requests) },
    { key: 'errors', header: header('errors', 'Errors'), number: true, from: 'md', cell: (row) => <Errors row={row} /> },
    { key: 'in', header: header('in', 'Tokens in'), number: true, from: 'md', cell: (row) => compact(row.prompt_tokens) },
    { key: 'out', header: header('out', 'Tokens out'), number: true, from: 'md', cell: (row) => compact(row.completion_tokens) },
    { key: 'cache', header: 'Cache hits', number: true, from: extra ? '2xl' : 'lg', cell: (row) => percent(row.requests === 0 ? null : row.cache_hits / row.requests) },
    { key: 'saved', header: 'Saved by caching', number: true, from: '2xl', cell: (row) => saved(row.cache_saved_usd) },
    { key: 'p50', header: 'p50', number: true, from: 'lg', cell: (row) => duration(row.p50_ms) },
    { key: 'p95', header: header('p95', 'p95'), number: true, from: 'lg', cell: (row) => duration(row.p95_ms) },
    // The API has it with a query only.
    ...(rows.some((row) => row.p99_ms != null) ? [{ key: 'p99', header: 'p99', number: true, from: 'lg' as const, cell: (row: Row) => duration(row.p99_ms) }] : []),
  ]
  return (
    <Section title={`By ${name.toLowerCase()}`} flush>
      <Table label={`Usage by ${name.toLowerCase()}`} columns={columns} rows={ranked(rows, sort)} rowKey={(row) => row.key ?? row.name} onOpen={(row) => row.key !== null && onOpen(term(by, row.key))} />
    </Section>
  )
}

/** How many, and which share of the requests. */
function Errors({ row }: { row: Row }) {
  return (
    <span className="whitespace-nowrap">
      {compact(row.errors)}
      {row.errors > 0 && <span className="text-muted"> · {percent(row.errors / row.requests)}</span>}
    </span>
  )
}

function SortButton({ text, active, onClick }: { text: string; active: boolean; onClick(): void }) {
  return (
    <button type="button" className={`inline-flex min-h-6 items-center gap-1 whitespace-nowrap hover:text-fg ${active ? 'text-fg' : ''}`} aria-pressed={active} title={`Sort by ${text.toLowerCase()}`} onClick={onClick}>
      {active && <ArrowDown size={12} className="shrink-0" aria-hidden />}
      {text}
    </button>
  )
}
