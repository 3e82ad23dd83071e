import { api, type Schemas } from '@/api/client'
import { money, NO_VALUE, time, integer } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Badge, ErrorPanel, SkeletonRows, Table, type Column } from '@/ui'
import type { LogDetail } from './copyAs'
import { costLines, type CostLine } from './costLines'

const COLUMNS: readonly Column<CostLine>[] = [
  { key: 'name', header: 'Tokens', cell: (line) => line.name },
  { key: 'tokens', header: 'Count', number: true, cell: (line) => integer(line.tokens) },
  { key: 'rate', header: 'Per million', number: true, cell: (line) => money(line.rate) },
  { key: 'amount', header: 'Amount', number: true, cell: (line) => money(line.amount) },
]

/** Cost breakdown by token class and rate. */
export function Cost({ log }: { log: LogDetail }) {
  const { zone } = usePrefs()
  const prices = api.useQuery('get', '/api/v1/usage/prices', { params: { query: { provider: log.provider, ...(log.model && { model: log.model }) } } }, { staleTime: 600_000 })
  if (prices.isError) return <ErrorPanel error={prices.error} what="the prices" onRetry={() => void prices.refetch()} />
  if (!prices.data) return <SkeletonRows rows={3} />
  if (log.total_tokens === null) return <p className="text-muted">No tokens were used: the call failed before there was a response.</p>
  const price: Schemas['Price'] | undefined = prices.data.prices.find((row) => row.model === log.model) ?? prices.data.prices[0]
  const lines = costLines(log, price)
  const sum = lines.reduce((total, line) => total + (line.amount ?? 0), 0)
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <span className="text-xl font-semibold tabular-nums">{log.cost_usd === null ? 'No price' : money(log.cost_usd)}</span>
        {log.usage_estimated && <Badge tone="warn" title="The provider reported no usage; tokens were counted by the gateway">estimated</Badge>}
      </div>
      <div className="card">
        <Table label="Cost by class of token" columns={COLUMNS} rows={lines} rowKey={(line) => line.name} />
      </div>
      {!price && (
        <p className="text-muted">
          We have no price for <code>{log.provider}/{log.model ?? NO_VALUE}</code>, so its cost is unknown, not zero.
        </p>
      )}
      {price && (
        <p className="text-xs text-muted">
          Prices as of {time(prices.data.as_of, zone, 'date')}.
          {log.cost_usd !== null && Math.abs(sum - log.cost_usd) > Math.max(1e-9, log.cost_usd * 0.01) && ' Cost was calculated with the price at request time, or a long-context or batch rate.'}
        </p>
      )}
    </>
  )
}
