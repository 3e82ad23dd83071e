import type { Schemas } from '@/api/client'
import { Meter } from '@/charts/Bars'
import { rankColors } from '@/charts/colors'
import { compact, duration, moneyColumn, percent } from '@/lib/format'
import { term } from '@/lib/query'
import { Section, Table, type Column } from '@/ui'
import type { Group } from './search'

type Row = Schemas['BreakdownRow']

interface RankingProps {
  by: Group
  name: string
  rows: readonly Row[]
  /** A further column after the costs. */
  extra?: Column<Row> | undefined
  onOpen(query: string): void
}

/** Groups ranked by spend. Enter opens the logs of a group. */
export function Ranking({ by, name, rows, extra, onOpen }: RankingProps) {
  const cost = moneyColumn(rows.map((row) => row.cost_usd))
  const saved = moneyColumn(rows.map((row) => row.cache_saved_usd))
  const colors = rankColors(rows)
  const total = rows.reduce((sum, row) => sum + (row.cost_usd ?? 0), 0)
  const columns: Column<Row>[] = [
    {
      key: 'name',
      header: name,
      className: 'max-w-64 min-w-40 max-sm:min-w-24',
      cell: (row) => (
        <div className="pb-1">
          <span className="block truncate" title={row.key ?? undefined}>{by === 'model' || by === 'provider' ? <code>{row.name}</code> : row.name}</span>
          <Meter share={total === 0 ? 0 : (row.cost_usd ?? 0) / total} color={colors(row)} />
        </div>
      ),
    },
    { key: 'cost', header: 'Cost', number: true, cell: (row) => (row.cost_usd === null ? 'no price' : cost(row.cost_usd)) },
    ...(extra ? [extra] : []),
    { key: 'share', header: 'Share', number: true, from: extra ? '2xl' : 'sm', cell: (row) => percent(total === 0 ? null : (row.cost_usd ?? 0) / total) },
    { key: 'requests', header: 'Requests', number: true, ...(extra && { from: 'sm' as const }), cell: (row) => compact(row.requests) },
    { key: 'errors', header: 'Errors', number: true, from: 'md', cell: (row) => percent(row.requests === 0 ? null : row.errors / row.requests) },
    { key: 'in', header: 'Tokens in', number: true, from: 'md', cell: (row) => compact(row.prompt_tokens) },
    { key: 'out', header: 'Tokens out', number: true, from: 'md', cell: (row) => compact(row.completion_tokens) },
    { key: 'cache', header: 'Cache hits', number: true, from: extra ? '2xl' : 'lg', cell: (row) => percent(row.requests === 0 ? null : row.cache_hits / row.requests) },
    { key: 'saved', header: 'Saved by caching', number: true, from: extra ? '2xl' : 'lg', cell: (row) => saved(row.cache_saved_usd) },
    { key: 'p50', header: 'p50', number: true, from: 'lg', cell: (row) => duration(row.p50_ms) },
    { key: 'p95', header: 'p95', number: true, from: 'lg', cell: (row) => duration(row.p95_ms) },
    // The API has it with a query only.
    ...(rows.some((row) => row.p99_ms != null) ? [{ key: 'p99', header: 'p99', number: true, from: 'lg' as const, cell: (row: Row) => duration(row.p99_ms) }] : []),
  ]
  return (
    <Section title={`By ${name.toLowerCase()}`} flush>
      <Table label={`Usage by ${name.toLowerCase()}`} columns={columns} rows={rows} rowKey={(row) => row.key ?? row.name} onOpen={(row) => row.key !== null && onOpen(term(by, row.key))} />
    </Section>
  )
}
