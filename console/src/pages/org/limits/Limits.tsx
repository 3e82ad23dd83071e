/** Limits of the organization, with what is used of them now. */
import { Gauge, Plus } from 'lucide-react'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useEffectEvent, useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { apiSnippet } from '@/lib/snippets'
import { Button, Code, ConfirmDialog, Empty, ErrorPanel, Page, Pager, SkeletonRows, toast } from '@/ui'
import { LimitForm, type NewLimit } from './LimitForm'
import { LimitTable } from './LimitTable'
import { LimitUsage } from './LimitUsage'
import { useLimitNames } from './useLimitNames'

type Limit = Schemas['Limit']

const ABOUT: Record<Schemas['Exactness'], string> = {
  exact: 'Limits are exact, for streamed responses too.',
  slices: 'Nodes share each limit: together they may exceed it by a tenth and one call.',
}

export function Limits() {
  const { orgId } = useMe()
  const names = useLimitNames()
  const [editing, setEditing] = useState<{ limit: Limit | null; initial?: NewLimit } | null>(null)
  const [shown, setShown] = useState<Limit | null>(null)
  const [removing, setRemoving] = useState<Limit | null>(null)
  const search = useSearch({ from: '/shell/org/limits' })
  const navigate = useNavigate({ from: '/org/limits' })
  // Another page may link to the form with what the limit is about.
  const openFromLink = useEffectEvent(() => {
    const { user, key, model } = search
    setEditing({ limit: null, initial: { user, key, model } })
    void navigate({ search: {}, replace: true })
  })
  useEffect(() => {
    if (search.new) openFromLink()
  }, [search.new])
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/limits', { params: { path: { orgId }, query: { limit: 50 } } }, cursorPaging)
  const limits = list.data?.pages.flatMap((page) => page.limits) ?? []
  const exactness = list.data?.pages[0]?.exactness
  const create = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => setEditing({ limit: null })}>
      Set limit
    </Button>
  )
  const remove = async (limit: Limit): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/limits/{limitId}', { params: { path: { orgId, limitId: limit.id } } }))
    // Only the list: the usage of a deleted limit cannot be read.
    await list.refetch()
    toast(`${limit.name} deleted`)
  }
  return (
    <Page title="Limits" about={`Cap requests, tokens and concurrent calls. ${exactness ? ABOUT[exactness] : ''}`} actions={limits.length > 0 && create}>
      {list.isPending ? (
        <SkeletonRows />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the limits" onRetry={() => void list.refetch()} />
      ) : limits.length === 0 ? (
        <Empty icon={<Gauge size={24} aria-hidden />} title="No limits yet" action={create} more={<Code label="The same with the API" code={apiSnippet(location.origin, `/orgs/${orgId}/limits`, { name: 'users', per: 'user', tokens: 60000, models: ['claude-*'] })} />}>
          A limit caps the requests or tokens that the organization, a team, an application, a key or each user may use in a minute, an hour or a day. Your plan’s requests-per-minute limit also applies.
        </Empty>
      ) : (
        <>
          <LimitTable limits={limits} names={names} onShow={setShown} onEdit={(limit) => setEditing({ limit })} onDelete={setRemoving} />
          {list.hasNextPage && <Pager shown={limits.length} what="limits" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </>
      )}
      {editing && <LimitForm limit={editing.limit} initial={editing.initial} names={names} onClose={() => setEditing(null)} />}
      {shown && <LimitUsage limit={shown} sentence={names.sentence(shown)} onClose={() => setShown(null)} />}
      {removing && (
        <ConfirmDialog open onClose={() => setRemoving(null)} title={`Delete ${removing.name}?`} action="Delete limit" onConfirm={() => remove(removing)}>
          It stops applying from the next request.
        </ConfirmDialog>
      )}
    </Page>
  )
}
