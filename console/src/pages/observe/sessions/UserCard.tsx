import { Link } from '@tanstack/react-router'
import { api } from '@/api/client'
import { compact, money, time } from '@/lib/format'
import { term } from '@/lib/query'
import { usePrefs } from '@/lib/prefs'

/** Totals of the user of a session. */
export function UserCard({ user }: { user: string }) {
  const { zone } = usePrefs()
  const summary = api.useQuery('get', '/api/v1/users/{userId}/summary', { params: { path: { userId: user } } }, { staleTime: 60_000 })
  const data = summary.data
  return (
    <section className="card flex min-h-14 flex-wrap items-center gap-x-6 gap-y-1 px-3 py-2" aria-label={`User ${user}`}>
      <div>
        <h2 className="text-xs font-normal text-muted">User</h2>
        <Link to="/sessions" search={{ query: term('user', user) }} className="font-medium text-accent underline">
          {user}
        </Link>
      </div>
      {data && (
        <>
          <Fact name="All requests" value={compact(data.requests)} />
          <Fact name="Tokens" value={compact(data.total_tokens)} />
          <Fact name="Cost" value={money(data.cost_usd)} />
          <Fact name="Most used model" value={data.top_models[0]?.model ?? '–'} />
          <Fact name="First seen" value={time(data.first_seen_at, zone, 'date')} />
        </>
      )}
      {summary.isError && <p className="text-xs text-muted">The summary of this user could not be loaded.</p>}
    </section>
  )
}

const Fact = ({ name, value }: { name: string; value: string }) => (
  <div>
    <div className="text-xs text-muted">{name}</div>
    <div className="tabular-nums">{value}</div>
  </div>
)
