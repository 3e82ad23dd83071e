import { Link, useNavigate } from '@tanstack/react-router'
import { api, type Schemas } from '@/api/client'
import type { LogRow } from '@/api/logs'
import { pollingOptions } from '@/api/query'
import { Meter } from '@/charts/Bars'
import { OTHER_COLOR } from '@/charts/colors'
import type { TimeSeries } from '@/charts/TimeChart'
import { ago, compact, duration, moneyColumn, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { term, withOwnCalls, type OwnCalls } from '@/lib/query'
import type { Range } from '@/lib/range'
import { useNow } from '@/lib/useNow'
import { ErrorPanel, HttpStatus, Section, SkeletonRows, Table, type Column } from '@/ui'

const MAX_ROWS = 6
/** The same definition everywhere: 4xx, 5xx and interrupted responses. */
const ERRORS = 'status:error'

interface PartProps {
  range: Range
  own: OwnCalls
}

interface TablesProps extends PartProps {
  /** The series of the chart of costs, whose colours the models have. */
  costs: readonly TimeSeries[]
}

export default function Tables({ costs, ...props }: TablesProps) {
  return (
    <>
      <TopModels {...props} costs={costs} />
      <NewestErrors {...props} />
    </>
  )
}

function TopModels({ range, own, costs }: TablesProps) {
  const { from, to } = range
  const models = api.useQuery('get', '/api/v1/usage/breakdown', { params: { query: { from, to, by: 'model', query: withOwnCalls('', own) || undefined } } }, pollingOptions())
  const navigate = useNavigate()
  const rows = models.data?.rows.slice(0, MAX_ROWS) ?? []
  const cost = moneyColumn(rows.map((row) => row.cost_usd))
  const maxCost = Math.max(0, ...rows.map((row) => row.cost_usd ?? 0))
  const columns: Column<Schemas['BreakdownRow']>[] = [
    {
      key: 'model',
      header: 'Model',
      className: 'name max-w-44',
      cell: (row) => (
        <div className="pb-1">
          <code className="name block truncate" title={row.name}>{row.name}</code>
          <Meter share={maxCost === 0 ? 0 : (row.cost_usd ?? 0) / maxCost} color={costs.find((one) => one.name === (row.key ?? 'unknown'))?.color ?? OTHER_COLOR} />
        </div>
      ),
    },
    { key: 'requests', header: 'Requests', number: true, cell: (row) => compact(row.requests) },
    { key: 'tokens', header: 'Tokens', number: true, from: 'sm', cell: (row) => compact(row.total_tokens) },
    { key: 'p95', header: 'p95', number: true, from: 'sm', cell: (row) => duration(row.p95_ms) },
    { key: 'cost', header: 'Cost', number: true, cell: (row) => (row.cost_usd === null ? 'no price' : cost(row.cost_usd)) },
  ]
  return (
    <Section title="Top models" flush aside={<Link to="/usage" className="text-xs text-accent underline">Usage</Link>}>
      {models.isError ? (
        <ErrorPanel error={models.error} what="the models" onRetry={() => void models.refetch()} />
      ) : !models.data ? (
        <SkeletonRows rows={MAX_ROWS} />
      ) : rows.length === 0 ? (
        <p className="px-3 pt-1 pb-4 text-muted">No requests in this range.</p>
      ) : (
        <Table label="Top models by cost" columns={columns} rows={rows} rowKey={(row) => row.name} onOpen={(row) => void navigate({ to: '/logs', search: { query: row.key === null ? undefined : term('model', row.key), own } })} />
      )}
    </Section>
  )
}

function NewestErrors({ range, own }: PartProps) {
  const { zone } = usePrefs()
  const now = useNow(15_000)
  const { from, to } = range
  const errors = api.useQuery('get', '/api/v1/logs', { params: { query: { from, to, query: withOwnCalls(ERRORS, own), limit: MAX_ROWS } } }, pollingOptions())
  const navigate = useNavigate()
  const columns: Column<LogRow>[] = [
    { key: 'when', header: 'When', cell: (row) => <time dateTime={row.created_at} title={time(row.created_at, zone, 'full')} className="whitespace-nowrap text-muted">{ago(row.created_at, now)}</time> },
    { key: 'status', header: 'Status', cell: (row) => <HttpStatus status={row.status} code={row.error_code} /> },
    { key: 'model', header: 'Model', className: 'max-w-48 truncate', from: 'sm', cell: (row) => <code>{row.provider}/{row.model}</code> },
    { key: 'latency', header: 'Latency', number: true, cell: (row) => duration(row.latency_ms) },
  ]
  return (
    <Section title="Newest errors" flush aside={
        <span className="flex gap-3 text-xs text-accent underline">
          <Link to="/logs" search={{ query: ERRORS, own, sort: 'latency', range: 'today' }}>Slowest failures today</Link>
          <Link to="/logs" search={{ query: ERRORS, own }}>All errors</Link>
        </span>
      }>
      {errors.isError ? (
        <ErrorPanel error={errors.error} what="the errors" onRetry={() => void errors.refetch()} />
      ) : !errors.data ? (
        <SkeletonRows rows={MAX_ROWS} />
      ) : errors.data.logs.length === 0 ? (
        <p className="px-3 pt-1 pb-4 text-muted">No errors in this range.</p>
      ) : (
        <Table label="Newest errors" columns={columns} rows={errors.data.logs} rowKey={(row) => row.id} onOpen={(row) => void navigate({ to: '/logs', search: { query: ERRORS, own, log: row.id } })} />
      )}
    </Section>
  )
}
