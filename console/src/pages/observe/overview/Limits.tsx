import { useQueries } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { pollingOptions } from '@/api/query'
import { duration, integer, plural } from '@/lib/format'
import { Badge, ErrorPanel, Section, SkeletonRows, Table, type Column } from '@/ui'
import { lastDay } from '@/pages/org/limits/LimitTable'

/** Limits whose use is read; an organization can have 100. */
const MAX_LIMITS = 20
const NEWEST_ROWS = 200
const POLL_MS = 60_000

interface Row {
  limit: Schemas['Limit']
  refused: number
  would: number
}

/** What limits refused in the last day, and how long requests wait for them. Nothing without limits. */
export default function LimitsCard() {
  const { orgId } = useMe()
  const limits = api.useQuery('get', '/api/v1/orgs/{orgId}/limits', { params: { path: { orgId }, query: { limit: 100 } } }, pollingOptions(POLL_MS))
  const enabled = (limits.data?.limits ?? []).filter((limit) => limit.enabled)
  const read = enabled.slice(0, MAX_LIMITS)
  const usages = useQueries({ queries: read.map((limit) => ({ ...api.queryOptions('get', '/api/v1/orgs/{orgId}/limits/{limitId}/usage', { params: { path: { orgId, limitId: limit.id } } }), refetchInterval: POLL_MS, meta: { quiet: true } })) })
  const newest = api.useQuery('get', '/api/v1/logs', { params: { query: { limit: NEWEST_ROWS } } }, { ...pollingOptions(POLL_MS), enabled: enabled.length > 0 })
  if (limits.isError) return <ErrorPanel error={limits.error} what="the limits" onRetry={() => void limits.refetch()} />
  if (enabled.length === 0) return null
  const now = Date.now()
  const rows: Row[] = read.map((limit, at) => ({ limit, ...lastDay(usages[at]?.data?.refusals ?? [], now) })).sort((a, b) => b.refused - a.refused || b.would - a.would)
  const columns: Column<Row>[] = [
    {
      key: 'limit',
      header: 'Limit',
      cell: ({ limit }) => (
        <span className="flex flex-wrap items-center gap-1">
          {limit.name} {limit.mode === 'dry_run' && <Badge tone="warn">dry run</Badge>}
        </span>
      ),
    },
    { key: 'refused', header: 'Refused, 24 h', number: true, cell: ({ refused }) => <span className={refused > 0 ? 'text-err' : undefined}>{integer(refused)}</span> },
    { key: 'would', header: 'Would be refused', number: true, from: 'sm', cell: ({ would }) => integer(would) },
  ]
  return (
    <Section title="Limits" flush aside={<Link to="/org/limits" className="text-xs text-accent underline">All limits</Link>}>
      {usages.some((usage) => usage.isPending) ? <SkeletonRows rows={3} /> : <Table label="Refusals by limit" columns={columns} rows={rows} rowKey={({ limit }) => limit.id} />}
      <p className="border-t border-line px-3 py-2 text-xs text-muted">
        {waitText(newest.data?.logs ?? [])}
        {enabled.length > MAX_LIMITS && ` The first ${MAX_LIMITS} of ${enabled.length} limits are shown.`}
      </p>
    </Section>
  )
}

function waitText(rows: readonly Schemas['LogRow'][]): string {
  const waits = rows.flatMap((row) => (row.queued_ms ? [row.queued_ms] : []))
  if (waits.length === 0) return `None of the newest ${plural(rows.length, 'request')} waited for a limit.`
  return `${integer(waits.length)} of the newest ${plural(rows.length, 'request')} waited for a limit, ${duration(Math.max(...waits))} at most.`
}
