/** API keys of the organization. */
import { KeyRound, Plus } from 'lucide-react'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { isUsable } from '@/lib/keyState'
import { useNow } from '@/lib/useNow'
import { Button, Empty, ErrorPanel, Field, Input, NoMatch, Page, Pager, Section, Select, SkeletonRows } from '@/ui'
import { HistoryDialog } from '@/pages/org/audit/History'
import { ImportedKeys } from './ImportedKeys'
import { KeyDialog } from './KeyDialog'
import { KeyTable } from './KeyTable'
import { useDisplayNames } from './useDisplayNames'

const KEY_STATES = ['ended', 'all'] as const

type Open = { kind: 'create' } | { kind: 'edit' | 'rotate' | 'revoke'; apiKey: Schemas['Key'] }

export function Keys() {
  const { q, state } = useSearch({ from: '/shell/keys' })
  const navigate = useNavigate({ from: '/keys' })
  const me = useMe()
  const now = useNow(30_000)
  const names = useDisplayNames()
  const [open, setOpen] = useState<Open | null>(null)
  const [past, setPast] = useState<Schemas['Key'] | null>(null)
  const list = api.useInfiniteQuery('get', '/api/v1/keys', { params: { query: { limit: 100 } } }, cursorPaging)
  const keys = list.data?.pages.flatMap((page) => page.keys) ?? []
  const term = (q ?? '').toLowerCase()
  const shown = keys.filter(
    (key) =>
      // A search finds ended keys too.
      (state === 'all' || (state === undefined && term !== '') || isUsable(key, now) === (state !== 'ended')) &&
      (term === '' || `${key.name} ${key.key_prefix} ${key.scopes.join(' ')}`.toLowerCase().includes(term)),
  )
  const mayManage = (key: Schemas['Key']): boolean => me.hasRole('admin') || (me.hasRole('member') && key.created_by === me.userId)
  const create = (
    <Button kind="primary" needs="member" icon={<Plus size={14} aria-hidden />} onClick={() => setOpen({ kind: 'create' })}>
      Create key
    </Button>
  )
  return (
    <Page title="Keys" about="Programs call the gateway with a key. It is shown once, and can be limited to providers and models." actions={keys.length > 0 && create}>
      {list.isPending ? (
        <SkeletonRows />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the keys" onRetry={() => void list.refetch()} />
      ) : keys.length === 0 ? (
        <Empty icon={<KeyRound size={24} aria-hidden />} title="No keys yet" action={create}>
          A key lets a program call models through the gateway, and shows which program made each request.
        </Empty>
      ) : (
        <>
          <div className="flex flex-wrap gap-2">
            <Field label="Search keys" quiet className="w-full sm:w-72">
              <Input type="search" placeholder="Name, prefix or scope" aria-label="Search keys" value={q ?? ''} onChange={(event) => void navigate({ search: (old) => ({ ...old, q: event.target.value || undefined }), replace: true })} />
            </Field>
            <Field label="State" quiet className="w-40">
              <Select
                aria-label="State"
                value={state ?? ''}
                onChange={(event) => void navigate({ search: (old) => ({ ...old, state: KEY_STATES.find((one) => one === event.target.value) }), replace: true })}
                options={[
                  { value: '', label: 'Usable' },
                  { value: 'ended', label: 'Expired or revoked' },
                  { value: 'all', label: 'All keys' },
                ]}
              />
            </Field>
          </div>
          <ImportedKeys keys={keys} now={now} />
          <Section flush>
            {shown.length === 0 ? (
              <NoMatch what="keys" onClear={() => void navigate({ search: {} })} />
            ) : (
              <KeyTable keys={shown} names={names} now={now} mayManage={mayManage} onAct={(kind, key) => (kind === 'history' ? setPast(key) : setOpen({ kind, apiKey: key }))} />
            )}
            <Pager shown={shown.length} what="keys" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
          </Section>
        </>
      )}
      {open && <KeyDialog {...open} onClose={() => setOpen(null)} />}
      {past && <HistoryDialog type="key" id={past.id} name={past.name} onClose={() => setPast(null)} />}
    </Page>
  )
}
