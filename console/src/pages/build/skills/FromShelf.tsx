import { Link, useNavigate } from '@tanstack/react-router'
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { ShelfCard } from './ShelfCard'

const MAX_CARDS = 3

/** The most copied skills of other organizations, for one that has none yet. */
export function FromShelf() {
  const me = useMe()
  const navigate = useNavigate()
  const list = api.useQuery('get', '/api/v1/skills/public', { params: { query: { sort: 'adoptions', limit: 20 } } }, { staleTime: 60_000, meta: { quiet: true } })
  const skills = (list.data?.skills ?? []).filter((skill) => skill.org_id !== me.orgId).slice(0, MAX_CARDS)
  if (skills.length === 0) return null
  return (
    <section className="flex flex-col gap-2">
      <div className="flex items-baseline gap-3">
        <h2 className="text-sm">From the shelf</h2>
        <Link to="/shelf" className="text-xs text-accent underline">
          All of them
        </Link>
      </div>
      <ul className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,280px),1fr))] gap-3" aria-label="From the shelf">
        {skills.map((skill) => (
          <ShelfCard key={skill.id} skill={skill} onOpen={() => void navigate({ to: '/shelf', search: { skill: skill.id } })} />
        ))}
      </ul>
    </section>
  )
}
