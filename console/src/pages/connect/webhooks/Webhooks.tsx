/** Webhooks of the organization. */
import { Plus, Send } from 'lucide-react'
import { useQueries } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { pollingOptions } from '@/api/query'
import { percent, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { apiSnippet } from '@/lib/snippets'
import { Badge, Button, Code, Empty, ErrorPanel, Page, Pager, PlanGate, Section, SkeletonRows, Table, type Column } from '@/ui'
import { WebhookForm } from './WebhookForm'
import { WebhookState } from './WebhookState'

const DESCRIPTION = 'A webhook sends events to your endpoint: a key was rotated, a member removed, a budget spent, an alert fired. Deliveries are signed, retried for a day, and recorded with every attempt.'

export function Webhooks() {
  const me = useMe()
  const [creating, setCreating] = useState(false)
  const options = { ...cursorPaging, ...pollingOptions(15_000), enabled: me.hasEntitlement('webhooks') }
  const list = api.useInfiniteQuery('get', '/api/v1/webhooks', { params: { query: { limit: 50 } } }, options)
  const webhooks = list.data?.pages.flatMap((page) => page.webhooks) ?? []
  const create = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => setCreating(true)}>
      Add webhook
    </Button>
  )
  return (
    <Page title="Webhooks" about="Send organization events to your endpoints." actions={webhooks.length > 0 && create}>
      <PlanGate needs="webhooks" name="Webhooks" about={DESCRIPTION}>
        {list.isPending ? (
          <SkeletonRows rows={4} />
        ) : list.isError ? (
          <ErrorPanel error={list.error} what="the webhooks" onRetry={() => void list.refetch()} />
        ) : webhooks.length === 0 ? (
          <Empty icon={<Send size={24} aria-hidden />} title="No webhooks yet" action={create} more={<Code label="The same with the API" code={apiSnippet(location.origin, '/webhooks', { url: 'https://example.com/hooks', events: ['key.revoke', 'budget.exceeded'] })} />}>
            {DESCRIPTION}
          </Empty>
        ) : (
          <Section flush>
            <WebhookTable webhooks={webhooks} />
            <Pager shown={webhooks.length} what="webhooks" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
          </Section>
        )}
      </PlanGate>
      {creating && <WebhookForm webhook={null} onClose={() => setCreating(false)} />}
    </Page>
  )
}

/** Webhooks whose deliveries are read for the share that arrived. */
const MAX_RATES = 20

/** The share of the newest deliveries that arrived, by webhook. */
function useArrivedShares(webhooks: readonly Schemas['Webhook'][]): ReadonlyMap<string, number> {
  const read = webhooks.slice(0, MAX_RATES)
  const lists = useQueries({ queries: read.map(({ id }) => ({ ...api.queryOptions('get', '/api/v1/webhooks/{webhookId}/deliveries', { params: { path: { webhookId: id }, query: { limit: 49 } } }), staleTime: 15_000, meta: { quiet: true } })) })
  const shares = read.map(({ id }, at): [string, number] | null => {
    const tried = (lists[at]?.data?.deliveries ?? []).filter((one) => one.attempts.length > 0)
    return tried.length === 0 ? null : [id, tried.filter((one) => one.status === 'delivered').length / tried.length]
  })
  return new Map(shares.filter((share) => share !== null))
}

function WebhookTable({ webhooks }: { webhooks: Schemas['Webhook'][] }) {
  const arrived = useArrivedShares(webhooks)
  const { zone } = usePrefs()
  const navigate = useNavigate()
  const columns: Column<Schemas['Webhook']>[] = [
    {
      key: 'url',
      header: 'Address',
      className: 'name w-full max-w-0 min-w-36',
      cell: (webhook) => (
        <Link to="/webhooks/$webhookId" params={{ webhookId: webhook.id }} search={{}} className="name block truncate font-mono text-xs hover:underline">
          {webhook.url}
        </Link>
      ),
    },
    { key: 'state', header: 'State', cell: (webhook) => <WebhookState webhook={webhook} /> },
    {
      key: 'arrived',
      header: 'Delivered',
      number: true,
      from: 'sm',
      cell: ({ id }) => {
        const share = arrived.get(id)
        return <span className={share !== undefined && share < 1 ? 'text-err' : 'text-muted'} title="Of the newest deliveries">{share === undefined ? '–' : percent(share)}</span>
      },
    },
    { key: 'events', header: 'Events', from: 'md', cell: (webhook) => <Events events={webhook.events} /> },
    { key: 'created', header: 'Created', from: 'lg', cell: (webhook) => <time title={time(webhook.created_at, zone, 'full')}>{time(webhook.created_at, zone, 'date')}</time> },
  ]
  return <Table label="Webhooks" columns={columns} rows={webhooks} rowKey={(webhook) => webhook.id} onOpen={(webhook) => void navigate({ to: '/webhooks/$webhookId', params: { webhookId: webhook.id }, search: {} })} />
}

function Events({ events }: { events: string[] }) {
  if (events.length === 0) return <span className="text-muted">all</span>
  return <span className="whitespace-nowrap" title={events.join('\n')}>{events.length === 1 ? <Badge>{events[0]}</Badge> : `${events.length} types`}</span>
}
