import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { pollingOptions } from '@/api/query'
import { compact, moneyColumn } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { OWN_CALLS_EXCLUDED, term } from '@/lib/query'
import { resolveRange } from '@/lib/range'
import { useNow } from '@/lib/useNow'
import { Section, Table, type Column } from '@/ui'
import { UserBudget, UserBudgetForm } from '../usage/UserBudget'

const MAX_ROWS = 5
const POLL_MS = 60_000
type Row = Schemas['BreakdownRow']

/** Users by what they spent this month, with their budgets. Nothing if no request names a user. */
export default function TopUsers() {
  const { orgId } = useMe()
  const { zone } = usePrefs()
  const navigate = useNavigate()
  const { from, to } = resolveRange({ range: 'this-month' }, useNow(POLL_MS), zone)
  const [capped, setCapped] = useState<string | null>(null)
  const users = api.useQuery('get', '/api/v1/usage/breakdown', { params: { query: { from, to, by: 'user', query: OWN_CALLS_EXCLUDED } } }, { ...pollingOptions(POLL_MS), meta: { quiet: true } })
  const rows = (users.data?.rows ?? []).filter((row) => row.key !== null).slice(0, MAX_ROWS)
  const budgets = api.useQuery('get', '/api/v1/orgs/{orgId}/budgets', { params: { path: { orgId }, query: { limit: 200 } } }, { ...pollingOptions(POLL_MS), enabled: rows.length > 0 })
  if (rows.length === 0) return null
  const cost = moneyColumn(rows.map((row) => row.cost_usd))
  const all = budgets.data?.budgets ?? []
  const columns: Column<Row>[] = [
    { key: 'user', header: 'User', className: 'name max-w-44 truncate', cell: (row) => row.name },
    { key: 'cost', header: 'Cost', number: true, cell: (row) => (row.cost_usd === null ? 'no price' : cost(row.cost_usd)) },
    { key: 'requests', header: 'Requests', number: true, from: 'sm', cell: (row) => compact(row.requests) },
    { key: 'budget', header: 'Budget', number: true, cell: ({ key }) => key !== null && <UserBudget user={key} budgets={all} onSet={() => setCapped(key)} /> },
  ]
  return (
    <Section title="Top users this month" flush aside={<Link to="/usage" search={{ by: 'user', range: 'this-month' }} className="text-xs text-accent underline">All users</Link>}>
      <Table label="Top users by cost" columns={columns} rows={rows} rowKey={(row) => row.name} onOpen={(row) => row.key !== null && void navigate({ to: '/logs', search: { query: term('user', row.key), range: 'this-month' } })} />
      {capped !== null && <UserBudgetForm user={capped} budgets={all} onClose={() => setCapped(null)} />}
    </Section>
  )
}
