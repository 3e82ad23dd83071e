/** Alerts of the organization: what they watch, what they found, and who is told. */
import { BellRing, Plus } from 'lucide-react'
import { getRouteApi } from '@tanstack/react-router'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { invalidate, pollingOptions } from '@/api/query'
import { apiSnippet } from '@/lib/snippets'
import { Button, Code, ConfirmDialog, Empty, ErrorPanel, Page, Pager, Section, SkeletonRows, toast } from '@/ui'
import { AlertForm } from './AlertForm'
import { AlertHistory } from './AlertHistory'
import { AlertTable } from './AlertTable'
import { Receivers } from './Receivers'

type Alert = Schemas['Alert']

const route = getRouteApi('/shell/alerts')
const EXAMPLE = { name: 'failures of gpt-4o', query: 'model:gpt-4o*', measure: 'error_rate', above: 0.2, window_minutes: 10, min_requests: 20 }

export function Alerts() {
  const { orgId } = useMe()
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const [editing, setEditing] = useState<Alert | null>(null)
  const [removing, setRemoving] = useState<Alert | null>(null)
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/alerts', { params: { path: { orgId }, query: { limit: 50 } } }, { ...cursorPaging, ...pollingOptions(10_000) })
  const alerts = list.data?.pages.flatMap((page) => page.alerts) ?? []
  const shown = alerts.find((alert) => alert.id === search.alert)
  const show = (alert: string | undefined) => void navigate({ search: (before) => ({ ...before, alert }) })
  const openForm = (open: boolean) => void navigate({ search: (before) => ({ ...before, new: open ? ('yes' as const) : undefined, query: undefined }), replace: !open })
  const create = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => openForm(true)}>
      Create alert
    </Button>
  )
  const remove = async (alert: Alert): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/alerts/{alertId}', { params: { path: { orgId, alertId: alert.id } } }))
    await invalidate('/api/v1/orgs/{orgId}/alerts')
    toast(`Alert ${alert.name} deleted`)
  }
  return (
    <Page title="Alerts" about="Get notified when errors, latency, traffic or spend rise above a threshold." actions={alerts.length > 0 && create}>
      {list.isPending ? (
        <SkeletonRows />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the alerts" onRetry={() => void list.refetch()} />
      ) : alerts.length === 0 ? (
        <Empty icon={<BellRing size={24} aria-hidden />} title="No alerts yet" action={create} more={<Code label="The same with the API" code={apiSnippet(location.origin, `/orgs/${orgId}/alerts`, EXAMPLE)} />}>
          An alert checks the requests of the last minutes that match a query. When the error rate, the number of requests or errors, the latency or the spend exceeds your threshold, webhooks and chat channels are notified, and again when it is back to normal.
        </Empty>
      ) : (
        <Section flush>
          <AlertTable alerts={alerts} onShow={(alert) => show(alert.id)} onEdit={setEditing} onDelete={setRemoving} />
          {list.hasNextPage && <Pager shown={alerts.length} what="alerts" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </Section>
      )}
      <Receivers />
      {search.new && <AlertForm alert={null} query={search.query ?? ''} onClose={() => openForm(false)} />}
      {editing && <AlertForm alert={editing} query={editing.query} onClose={() => setEditing(null)} />}
      {shown && <AlertHistory alert={shown} onClose={() => show(undefined)} />}
      {removing && (
        <ConfirmDialog open onClose={() => setRemoving(null)} title={`Delete ${removing.name}?`} action="Delete alert" onConfirm={() => remove(removing)}>
          It is no longer checked, and its history is deleted.
        </ConfirmDialog>
      )}
    </Page>
  )
}
