/** What each key spent this month, and its budget. */
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { resolveRange } from '@/lib/range'

export interface KeySpend {
  spent: number | null
  /** The budget of the key with the smallest limit left. */
  budget: Schemas['Budget'] | null
}

export function useKeySpend(now: number): (keyId: string) => KeySpend {
  const { orgId } = useMe()
  // Budgets count by months of UTC, and so does this.
  const { from, to } = resolveRange({ range: 'this-month' }, now, 'utc')
  const usage = api.useQuery('get', '/api/v1/usage/breakdown', { params: { query: { from, to, by: 'key' } } }, { staleTime: 60_000, placeholderData: (before) => before })
  const budgets = api.useQuery('get', '/api/v1/orgs/{orgId}/budgets', { params: { path: { orgId }, query: { limit: 200 } } }, { staleTime: 60_000 })
  return (keyId) => ({
    spent: usage.data ? (usage.data.rows.find((row) => row.key === keyId)?.cost_usd ?? 0) : null,
    budget: budgets.data?.budgets.find((budget) => budget.scope === 'key' && budget.scope_id === keyId) ?? null,
  })
}
