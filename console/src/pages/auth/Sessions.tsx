import { X } from 'lucide-react'
import { signOutEverywhere } from '@/api/auth'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Badge, Button, ErrorLine, ErrorPanel, Section, SkeletonRows, Table, type Column } from '@/ui'

type UserSession = Schemas['UserSession']

/** Where the user is signed in. */
export function Sessions() {
  const { zone } = usePrefs()
  const now = useNow(60_000)
  const list = api.useQuery('get', '/api/v1/auth/sessions', { params: { query: { limit: 100 } } })
  const end = useAction(async (session: UserSession) => {
    await unwrap(client.DELETE('/api/v1/auth/sessions/{userSessionId}', { params: { path: { userSessionId: session.id } } }))
    await invalidate('/api/v1/auth')
  })
  const endAll = useAction(signOutEverywhere)
  const columns: Column<UserSession>[] = [
    {
      key: 'where',
      header: 'From',
      className: 'name max-w-[1px] w-2/3',
      cell: (session) => (
        <span className="flex min-w-0 flex-col py-1">
          <span className="flex items-center gap-2">
            <span className="font-mono">{session.address}</span>
            {session.current && <Badge tone="accent">this one</Badge>}
          </span>
          <span className="name truncate text-muted" title={session.user_agent}>
            {session.user_agent}
          </span>
        </span>
      ),
    },
    { key: 'since', header: 'Signed in', cell: (session) => <time title={time(session.created_at, zone, 'full')}>{ago(session.created_at, now)}</time> },
    {
      key: 'end',
      header: <span className="sr-only">Actions</span>,
      className: 'text-right',
      cell: (session) =>
        session.current ? null : (
          <Button kind="ghost" size="sm" busy={end.busy} icon={<X size={14} aria-hidden />} aria-label={`End the session from ${session.address}`} onClick={() => end.run(session)}>
            <span className="max-sm:sr-only">End</span>
          </Button>
        ),
    },
  ]
  return (
    <Section
      title="Sessions"
      flush
      aside={
        <Button size="sm" busy={endAll.busy} onClick={() => endAll.run()}>
          End all sessions
        </Button>
      }
    >
      {list.isPending ? (
        <SkeletonRows rows={2} />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the sessions" onRetry={() => void list.refetch()} />
      ) : (
        <Table label="Sessions" columns={columns} rows={list.data.sessions} rowKey={(session) => session.id} />
      )}
      <ErrorLine error={end.error ?? endAll.error} />
    </Section>
  )
}
