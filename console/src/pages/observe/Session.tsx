import { getRouteApi, Link } from '@tanstack/react-router'
import { api } from '@/api/client'
import { useLiveLogs } from '@/api/logs'
import { invalidate } from '@/api/query'
import { compact, duration, money, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { term } from '@/lib/query'
import { CopyButton, ErrorPanel, Page, SkeletonCards, SkeletonRows, Tabs } from '@/ui'
import { WithLogDrawer } from './log/LogDrawer'
import { SessionConversation } from './sessions/SessionConversation'
import { SessionTimeline } from './sessions/SessionTimeline'
import type { SessionSearch } from './sessions/search'
import { UserCard } from './sessions/UserCard'

const route = getRouteApi('/shell/sessions/$sessionId')

/** One session as a conversation or as a timeline. */
export function Session() {
  const { sessionId } = route.useParams()
  const search: SessionSearch = route.useSearch()
  const navigate = route.useNavigate()
  const { zone } = usePrefs()
  const query = api.useQuery('get', '/api/v1/sessions/{sessionId}', { params: { path: { sessionId } } })
  const view = search.view ?? 'conversation'
  // Asked for together with the session, not after it.
  api.useQuery('get', '/api/v1/sessions/{sessionId}/timeline', { params: { path: { sessionId } } }, { enabled: view === 'timeline' })
  useLiveLogs((row) => row.session_id === sessionId, () => void invalidate(`/api/v1/sessions/{sessionId}`))
  const session = query.data
  const set = (change: Partial<SessionSearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  const open = (log: number) => set({ log })
  return (
    <WithLogDrawer logId={search.log} tab={search.tab ?? 'conversation'} onTab={(tab) => set({ tab })} onClose={() => set({ log: undefined, tab: undefined })}>
      <div className="min-h-0 overflow-y-auto">
        <Page
          title={`Session ${sessionId}`}
          beside={<CopyButton value={sessionId} label="Copy the session id" />}
          about={session && `${time(session.started_at, zone)}, ${duration(Date.parse(session.last_seen_at) - Date.parse(session.started_at))} long`}
          actions={
            <Link to="/logs" search={{ query: term('session', sessionId), own: 'show' }} className="btn">
              Show in logs
            </Link>
          }
        >
          {query.isError ? (
            <ErrorPanel error={query.error} what="this session" onRetry={() => void query.refetch()} />
          ) : !session ? (
            <>
              <SkeletonCards />
              <SkeletonRows />
            </>
          ) : (
            <>
              <div className="flex flex-wrap gap-x-6 gap-y-1">
                <Figure name="Requests" value={compact(session.request_count)} />
                <Figure name="Errors" value={compact(session.errors)} />
                <Figure name="Tokens" value={compact(session.total_tokens)} />
                <Figure name="Cost" value={money(session.cost_usd)} />
                <Figure name="Models" value={session.models.join(', ')} mono />
              </div>
              {session.user && <UserCard user={session.user} />}
              <div className="card">
                <Tabs
                  label="View"
                  value={view}
                  onChange={(view) => set({ view })}
                  items={[
                    { value: 'conversation', label: 'Conversation', content: <SessionConversation requests={session.requests} onOpen={open} /> },
                    { value: 'timeline', label: 'Timeline', content: <SessionTimeline sessionId={sessionId} requests={session.requests} onOpen={open} /> },
                  ]}
                />
              </div>
            </>
          )}
        </Page>
      </div>
    </WithLogDrawer>
  )
}

function Figure({ name, value, mono }: { name: string; value: string; mono?: boolean }) {
  return (
    <div>
      <div className="text-xs text-muted">{name}</div>
      <div className={mono ? 'font-mono text-xs leading-6 break-all' : 'text-lg font-semibold tabular-nums'}>{value}</div>
    </div>
  )
}
