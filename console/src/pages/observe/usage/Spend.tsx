import { useNavigate } from '@tanstack/react-router'
import { Download } from 'lucide-react'
import { useMemo, useRef, useState, type ReactNode } from 'react'
import { api, type Schemas } from '@/api/client'
import { ApiError } from '@/api/error'
import { useMe } from '@/api/me'
import { pollingOptions } from '@/api/query'
import { assignColors, namedGroups } from '@/charts/assign'
import { toCsv } from '@/lib/csv'
import { download } from '@/lib/download'
import { compact, money, percent, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { hasField, joinTerms, withOwnCalls, type OwnCalls } from '@/lib/query'
import { useRange } from '@/lib/useRange'
import { Button, Empty, ErrorPanel, NoMatch, Section, Select, Skeleton, SkeletonRows, type Column } from '@/ui'
import { OwnSwitch } from '../OwnSwitch'
import { QueryBox } from '../query/QueryBox'
import { Budgets } from './Budgets'
import { CostChart } from './CostChart'
import { ranked } from './ranked'
import { Ranking } from './Ranking'
import { GROUP_NAMES } from './groups'
import { GROUPS, type Group, type RankField, type UsageSearch } from './search'
import { UserBudget, UserBudgetForm } from './UserBudget'

interface SpendProps {
  /** The menu of views. */
  views: ReactNode
  by: Group
  query: string
  own: OwnCalls
  sort: RankField | undefined
  onChange(change: Pick<UsageSearch, 'by' | 'query' | 'own' | 'sort'>): void
}

export function Spend({ views, by, query, own, sort, onChange }: SpendProps) {
  const me = useMe()
  const navigate = useNavigate()
  const range = useRange()
  const { zone } = usePrefs()
  const box = useRef<HTMLInputElement>(null)
  const { from, to } = range
  const effective = withOwnCalls(query, own)
  const [userBudget, setUserBudget] = useState<string | null>(null)
  const breakdown = api.useQuery('get', '/api/v1/usage/breakdown', { params: { query: { from, to, by, query: effective || undefined } } }, { ...pollingOptions(60_000), retry: false })
  const budgets = api.useQuery('get', '/api/v1/orgs/{orgId}/budgets', { params: { path: { orgId: me.orgId }, query: { limit: 200 } } }, pollingOptions(60_000))
  // Placeholder data may belong to the previous grouping; ignore it.
  const rows = breakdown.data?.by === by ? breakdown.data.rows : null
  // Errors rarely cost anything: the most frequent first.
  const usual: RankField = by === 'error' ? 'requests' : 'cost'
  const colorFor = useMemo(() => assignColors(namedGroups(rows ?? []).map((row) => row.key)), [rows])
  const failure: unknown = breakdown.error
  const queryError = failure instanceof ApiError && failure.fields['query'] !== undefined ? failure : null

  const allBudgets = budgets.data?.budgets ?? []
  const budgetColumn: Column<Schemas['BreakdownRow']> = {
    key: 'budget',
    header: 'Budget',
    number: true,
    cell: ({ key }) => key !== null && <UserBudget user={key} budgets={allBudgets} onSet={() => setUserBudget(key)} />,
  }
  const exportCsv = () => download(`usage-by-${by}-${from.slice(0, 10)}-to-${to.slice(0, 10)}.csv`, 'text/csv', csvOf(ranked(rows ?? [], sort ?? usual), by))
  return (
    <div className="flex flex-col gap-4 pt-4">
      <QueryBox value={query} onChange={(next) => onChange({ query: next || undefined })} error={queryError} inputRef={box} placeholder="All requests. Filter: user:maria model:gpt-4o* metadata.env:prod" />
      <div className="flex flex-wrap items-center gap-2">
        {views}
        <label className="flex items-center gap-2">
          <span className="text-muted">Group by</span>
          <Select className="w-36" value={by} onChange={(event) => onChange({ by: event.target.value as Group })} options={GROUPS.map((group) => ({ value: group, label: GROUP_NAMES[group] }))} />
        </label>
        <Totals rows={rows} by={by} query={effective} from={from} to={to} />
        <OwnSwitch own={own} blocked={hasField(query, 'source')} onChange={(next) => onChange({ own: next })} />
        <Button className="ml-auto" icon={<Download size={14} aria-hidden />} blocked={!rows?.length && 'There is nothing to download'} onClick={exportCsv}>
          CSV
        </Button>
      </div>
      {breakdown.data?.partial && (
        <p role="status" className="rounded-sm bg-warn-soft px-3 py-1.5 text-xs">
          There are too many requests to count all of them: the numbers begin at {time(breakdown.data.scanned_to, zone)}. Choose a shorter time range to count all.
        </p>
      )}
      {queryError ? null : breakdown.isError ? (
        <ErrorPanel error={breakdown.error} what="the usage" onRetry={() => void breakdown.refetch()} />
      ) : !rows ? (
        <>
          <div className="card h-[246px] p-3">
            <Skeleton className="h-4 w-24" />
            <Skeleton className="mt-4 h-40 w-full" />
          </div>
          <Section flush>
            <SkeletonRows />
          </Section>
        </>
      ) : rows.length === 0 ? (
        query === '' ? (
          <Empty title={by === 'tool' ? 'No tools were called in this range' : by === 'error' ? 'No errors in this range' : 'Nothing was used in this range'}>Choose a longer range at the top. Requests appear here within seconds.</Empty>
        ) : (
          <NoMatch what="requests" chips={<code className="rounded-sm bg-sunken px-2 py-1 break-all">{query}</code>} onClear={() => onChange({ query: undefined })} />
        )
      ) : (
        <>
          <CostChart range={range} by={by} search={{ query: query || undefined, own }} rows={rows} colorFor={colorFor} budgets={allBudgets} />
          <Ranking by={by} name={GROUP_NAMES[by]} rows={rows} colorFor={colorFor} sort={sort ?? usual} onSort={(next) => onChange({ sort: next === usual ? undefined : next })} extra={by === 'user' ? budgetColumn : undefined} onOpen={(group) => void navigate({ to: '/logs', search: { query: joinTerms(query, group), own } })} />
        </>
      )}
      {userBudget !== null && <UserBudgetForm user={userBudget} budgets={allBudgets} onClose={() => setUserBudget(null)} />}
      <Budgets budgets={budgets.data?.budgets.filter((budget) => budget.spent_usd !== null)} error={budgets.error} onRetry={() => void budgets.refetch()} />
    </div>
  )
}

function Totals({ rows, by, query, from, to }: { rows: readonly Schemas['BreakdownRow'][] | null; by: Group; query: string; from: string; to: string }) {
  const isUnpriced = rows?.some((row) => row.unpriced > 0) ?? false
  // It is models that have no price, whatever the table is grouped by.
  const byModel = api.useQuery('get', '/api/v1/usage/breakdown', { params: { query: { from, to, by: 'model', query: query || undefined } } }, { enabled: isUnpriced && by !== 'model', staleTime: 60_000, placeholderData: (before) => before })
  if (!rows) return null
  const sum = (pick: (row: Schemas['BreakdownRow']) => number | null) => rows.reduce((total, row) => total + (pick(row) ?? 0), 0)
  const models = (by === 'model' ? rows : (byModel.data?.rows ?? [])).filter((row) => row.unpriced > 0).map((row) => row.name)
  return (
    <p className="text-muted">
      <b className="text-fg tabular-nums">{money(sum((row) => row.cost_usd))}</b> for {plural(sum((row) => row.requests), 'request')}, {compact(sum((row) => row.total_tokens))} tokens
      {isUnpriced && (
        <span className="text-warn" title={models.join(', ')}>
          {' '}
          · {plural(sum((row) => row.unpriced), 'request')} to models without a price{models.length > 0 && `: ${models.slice(0, 2).join(', ')}`}
          {models.length > 2 && ` and ${models.length - 2} more`}
        </span>
      )}
    </p>
  )
}

function csvOf(rows: readonly Schemas['BreakdownRow'][], by: Group): string {
  const header = [by, 'name', 'requests', 'errors', 'error_share', 'prompt_tokens', 'completion_tokens', 'total_tokens', 'cost_usd', 'unpriced', 'cache_hits', 'cached_tokens', 'cache_write_tokens', 'cache_saved_usd', 'p50_ms', 'p95_ms']
  return toCsv(
    header,
    rows.map((row) => [row.key, row.name, row.requests, row.errors, percent(row.requests === 0 ? null : row.errors / row.requests), row.prompt_tokens, row.completion_tokens, row.total_tokens, row.cost_usd, row.unpriced, row.cache_hits, row.cached_tokens, row.cache_write_tokens, row.cache_saved_usd, row.p50_ms, row.p95_ms]),
  )
}
