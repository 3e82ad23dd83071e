import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { MessagesSquare } from 'lucide-react'
import { useRef } from 'react'
import { api, type Schemas } from '@/api/client'
import { ApiError } from '@/api/error'
import { cursorPaging } from '@/api/paging'
import { ago, compact, duration, moneyColumn, NO_VALUE, time } from '@/lib/format'
import { usePrefs, type SavedView } from '@/lib/prefs'
import { hasField, withOwnCalls, type OwnCalls } from '@/lib/query'
import type { RangeSearch } from '@/lib/range'
import { useNow } from '@/lib/useNow'
import { useRange } from '@/lib/useRange'
import { viewSearchOf } from '@/lib/views'
import { Badge, Code, Empty, ErrorPanel, NoMatch, Page, Pager, Section, SkeletonRows, Table, type Column } from '@/ui'
import { PartialNote } from './logs/Partial'
import { OwnSwitch } from './OwnSwitch'
import { QueryBox } from './query/QueryBox'
import type { SessionsSearch } from './sessions/search'
import { ViewsMenu } from './views/ViewsMenu'

const route = getRouteApi('/shell/sessions')
type Session = Schemas['Session']

const STANDARD_VIEWS: readonly SavedView[] = [
  { name: 'All sessions', search: {} },
  { name: 'With errors', search: { query: 'status:error' } },
]

/** List of sessions. */
export function Sessions() {
  const search: SessionsSearch & RangeSearch = route.useSearch()
  const navigate = useNavigate()
  const range = useRange()
  const { zone } = usePrefs()
  const now = useNow(15_000)
  const box = useRef<HTMLInputElement>(null)
  const query = search.query ?? ''
  const list = api.useInfiniteQuery(
    'get',
    '/api/v1/sessions',
    { params: { query: { query: withOwnCalls(query, search.own) || undefined, from: range.from, to: range.to, limit: 100 } } },
    { ...cursorPaging, placeholderData: (before) => before, retry: false },
  )
  const rows = list.data?.pages.flatMap((page) => page.sessions) ?? []
  const setQuery = (next: string) => void navigate({ to: '/sessions', search: (before) => ({ ...before, query: next || undefined }) })
  const setOwn = (own: OwnCalls) => void navigate({ to: '/sessions', search: (before) => ({ ...before, own }), replace: true })
  const failure: unknown = list.error
  const queryError = failure instanceof ApiError && failure.fields['query'] !== undefined ? failure : null
  const cost = moneyColumn(rows.map((row) => row.cost_usd))
  const columns: Column<Session>[] = [
    {
      key: 'id',
      header: 'Session',
      className: 'name max-w-56 truncate',
      cell: (row) => (
        <>
          <code title={row.id}>{row.id}</code>
          {row.user !== null && <span className="block text-xs text-muted sm:hidden">{row.user}</span>}
        </>
      ),
    },
    { key: 'user', header: 'User', className: 'max-w-40 truncate', from: 'sm', cell: (row) => row.user ?? NO_VALUE },
    { key: 'started', header: 'Started', cell: (row) => <time dateTime={row.started_at} title={time(row.started_at, zone, 'full')} className="whitespace-nowrap">{ago(row.started_at, now)}</time> },
    { key: 'length', header: 'Length', number: true, from: 'md', cell: (row) => (row.requests < 2 ? NO_VALUE : duration(Date.parse(row.last_seen_at) - Date.parse(row.started_at))) },
    { key: 'requests', header: 'Requests', number: true, from: 'sm', cell: (row) => compact(row.requests) },
    { key: 'models', header: 'Models', className: 'max-w-60 truncate', from: 'lg', cell: (row) => <code title={row.models.join(', ')}>{row.models.join(', ')}</code> },
    { key: 'tokens', header: 'Tokens', number: true, from: 'md', cell: (row) => compact(row.total_tokens) },
    { key: 'cost', header: 'Cost', number: true, cell: (row) => cost(row.cost_usd) },
    { key: 'errors', header: 'Errors', number: true, from: 'sm', cell: (row) => (row.errors > 0 ? <Badge tone="err">{row.errors}</Badge> : '0') },
  ]
  return (
    <Page
      title="Sessions"
      about="Requests with the same X-Gateway-Session, or of one key and user less than 30 minutes apart"
      actions={
        <>
          <OwnSwitch own={search.own} blocked={hasField(query, 'source')} onChange={setOwn} />
          <ViewsMenu
            page="sessions"
            standard={STANDARD_VIEWS}
            current={viewSearchOf(search)}
            onOpen={(next) => void navigate({ to: '/sessions', search: () => ({ ...(search.range && { range: search.range }), ...next }) })}
          />
        </>
      }
    >
      <QueryBox value={query} onChange={setQuery} error={queryError} inputRef={box} placeholder="Sessions with a request that matches: user:maria status:error cost:>0.01" />
      {queryError ? null : list.isError ? (
        <ErrorPanel error={list.error} what="the sessions" onRetry={() => void list.refetch()} />
      ) : !list.data ? (
        <Section flush>
          <SkeletonRows rows={10} />
        </Section>
      ) : rows.length === 0 ? (
        query === '' ? <None /> : <NoMatch what="sessions" chips={<code className="rounded-sm bg-sunken px-2 py-1 break-all">{query}</code>} onClear={() => setQuery('')} />
      ) : (
        <Section flush>
          <Table label="Sessions" columns={columns} rows={rows} rowKey={(row) => row.id} onOpen={(row) => void navigate({ to: '/sessions/$sessionId', params: { sessionId: row.id } })} />
          <Pager shown={rows.length} what="sessions" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
        </Section>
      )}
      {list.data && <PartialNote page={list.data.pages.at(-1)} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
    </Page>
  )
}

function None() {
  return (
    <Empty
      icon={<MessagesSquare size={24} aria-hidden />}
      title="No sessions in this range"
      more={<Code label="A header on each request" code={'-H "X-Gateway-Session: conversation-42" -H "X-Gateway-User: ada"'} />}
    >
      Send the session and the user in headers to read a conversation from beginning to end.
    </Empty>
  )
}
