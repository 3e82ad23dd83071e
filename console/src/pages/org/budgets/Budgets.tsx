/** Budgets of the organization. */
import { Plus, Wallet } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { pollingOptions, invalidate } from '@/api/query'
import { apiSnippet } from '@/lib/snippets'
import { Button, Code, ConfirmDialog, Empty, ErrorPanel, Page, Pager, SkeletonCards, toast } from '@/ui'
import { BudgetCard } from './BudgetCard'
import { BudgetForm } from './BudgetForm'
import { useScopeNames } from './useScopeNames'

type Budget = Schemas['Budget']

export function Budgets() {
  const { orgId } = useMe()
  const names = useScopeNames()
  const [editing, setEditing] = useState<{ budget: Budget | null } | null>(null)
  const [removing, setRemoving] = useState<Budget | null>(null)
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/budgets', { params: { path: { orgId }, query: { limit: 50 } } }, { ...cursorPaging, ...pollingOptions(60_000) })
  const budgets = list.data?.pages.flatMap((page) => page.budgets) ?? []
  const create = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => setEditing({ budget: null })}>
      Set budget
    </Button>
  )
  const remove = async (budget: Budget): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/budgets/{budgetId}', { params: { path: { orgId, budgetId: budget.id } } }))
    await invalidate('/api/v1/orgs')
    toast('Budget deleted')
  }
  return (
    <Page title="Budgets" about="A soft limit notifies you; a hard limit blocks further requests. Periods are in UTC. Spans received over OTLP count in Usage, not in budgets." actions={budgets.length > 0 && create}>
      {list.isPending ? (
        <SkeletonCards cards={3} className="h-36" />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the budgets" onRetry={() => void list.refetch()} />
      ) : budgets.length === 0 ? (
        <Empty icon={<Wallet size={24} aria-hidden />} title="No budgets yet" action={create} more={<Code label="The same with the API" code={apiSnippet(location.origin, `/orgs/${orgId}/budgets`, { scope: 'org', period: 'monthly', soft_limit_usd: 80, hard_limit_usd: 100 })} />}>
          A budget limits what the organization, a team, an application, a key or each end user spends in a day, a week or a month.
        </Empty>
      ) : (
        <>
          <ul className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,340px),1fr))] gap-3">
            {budgets.map((budget) => (
              <BudgetCard key={budget.id} budget={budget} name={names.of(budget.scope, budget.scope_id)} onEdit={() => setEditing({ budget })} onDelete={() => setRemoving(budget)} />
            ))}
          </ul>
          {list.hasNextPage && <Pager shown={budgets.length} what="budgets" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </>
      )}
      {editing && <BudgetForm budget={editing.budget} names={names} onClose={() => setEditing(null)} />}
      {removing && (
        <ConfirmDialog open onClose={() => setRemoving(null)} title={`Delete the ${removing.period} budget of ${names.of(removing.scope, removing.scope_id)}?`} action="Delete budget" onConfirm={() => remove(removing)}>
          It stops applying from the next request. Past spend stays in Usage.
        </ConfirmDialog>
      )}
    </Page>
  )
}
