import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { Download, LibraryBig } from 'lucide-react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { invalidate } from '@/api/query'
import { ago, plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Badge, Button, DockedDrawer, Empty, ErrorLine, ErrorPanel, Input, NoMatch, Page, Pager, Select, Skeleton, SkeletonCards, toast } from '@/ui'
import { Json } from '@/ui/Json'
import { Score } from './Score'
import { SORTS, type ShelfSearch } from './search'
import { SkillsLayout } from './SkillsLayout'

const route = getRouteApi('/shell/shelf')
type Skill = Schemas['Skill']

/** The shelf: published skills of all organizations. */
export function Shelf() {
  const search: ShelfSearch = route.useSearch()
  const navigate = route.useNavigate()
  const set = (change: Partial<ShelfSearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  return (
    <DockedDrawer open={search.skill !== undefined} onClose={() => set({ skill: undefined })} label="Skill of the shelf" head={<h2 className="py-1 text-base">On the shelf</h2>} content={search.skill && <ShelfDetail skillId={search.skill} />}>
      <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">
        <Page title="Shelf" about="Skills that organizations of this installation have published">
          <SkillsLayout current="shelf">
            <Cards search={search} set={set} />
          </SkillsLayout>
        </Page>
      </div>
    </DockedDrawer>
  )
}

function Cards({ search, set }: { search: ShelfSearch; set(change: Partial<ShelfSearch>): void }) {
  const { q, sort } = search
  const list = api.useInfiniteQuery('get', '/api/v1/skills/public', { params: { query: { name_like: q, sort, limit: 60 } } }, { ...cursorPaging, placeholderData: (before) => before })
  const skills = list.data?.pages.flatMap((page) => page.skills) ?? []
  if (list.isError) return <ErrorPanel error={list.error} what="the shelf" onRetry={() => void list.refetch()} />
  return (
    <>
      {(skills.length > 0 || q) && (
        <div className="flex flex-wrap items-center gap-2">
          <Input key={q ?? ''} type="search" aria-label="Find on the shelf" placeholder="A part of the name" className="max-w-72" defaultValue={q ?? ''} onBlur={(event) => set({ q: event.target.value.trim() || undefined })} onKeyDown={(event) => event.key === 'Enter' && set({ q: event.currentTarget.value.trim() || undefined })} />
          <Select aria-label="Order" className="w-40" value={sort ?? 'recent'} onChange={(event) => set({ sort: SORTS.find((one) => one === event.target.value) })} options={[{ value: 'recent', label: 'Newest first' }, { value: 'adoptions', label: 'Most adopted' }, { value: 'score', label: 'Best score' }]} />
        </div>
      )}
      {!list.data ? (
        <SkeletonCards cards={6} className="h-36" />
      ) : skills.length === 0 ? (
        q ? (
          <NoMatch what="skills" onClear={() => set({ q: undefined })} />
        ) : (
          <Empty icon={<LibraryBig size={24} aria-hidden />} title="The shelf is empty">
            Publish a skill of yours that has passed its evaluation, and everybody here can adopt it.
          </Empty>
        )
      ) : (
        <>
          <ul className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,280px),1fr))] gap-3" aria-label="Shelf">
            {skills.map((skill) => (
              <Card key={skill.id} skill={skill} onOpen={() => set({ skill: skill.id })} />
            ))}
          </ul>
          {list.hasNextPage && <Pager shown={skills.length} what="skills" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </>
      )}
    </>
  )
}

function Card({ skill, onOpen }: { skill: Skill; onOpen(): void }) {
  const now = useNow(60_000)
  return (
    <li className="card flex flex-col gap-2 p-3">
      <div className="flex items-start gap-2">
        <button type="button" className="min-h-6 min-w-0 flex-1 truncate text-left font-mono text-xs font-medium text-accent underline" onClick={onOpen}>
          {skill.name}
        </button>
        {skill.latest_evaluation && <Score {...skill.latest_evaluation} />}
      </div>
      <p className="line-clamp-3 flex-1 text-muted">{skill.headline || skill.description}</p>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1 text-xs text-muted">
        <span>
          by <code>{skill.publisher ?? '–'}</code>
        </span>
        <span className="tabular-nums">v{skill.published_version ?? skill.version}</span>
        <span>{plural(skill.adoptions, 'adoption')}</span>
        <span>{ago(skill.published_at, now)}</span>
        <Adopt skill={skill} />
      </div>
    </li>
  )
}

/** Adopts a skill as a copy. If the name is taken the copy gets another name, which is shown. */
function Adopt({ skill }: { skill: Skill }) {
  const me = useMe()
  const navigate = useNavigate()
  const adopt = useAction(async () => {
    const adopted = await unwrap(client.POST('/api/v1/skills/public/{skillId}/adopt', { params: { path: { skillId: skill.id } } }))
    await invalidate('/api/v1/skills')
    toast(adopted.renamed ? `You have a skill ${skill.name} already, so the copy is called ${adopted.name}` : `${adopted.name} is yours now`)
    await navigate({ to: '/skills/$skillId', params: { skillId: adopted.skill.id } })
  })
  if (skill.org_id === me.orgId) return <Badge>yours</Badge>
  return (
    <span className="ml-auto flex flex-col items-end gap-1">
      <Button size="sm" needs="member" busy={adopt.busy} icon={<Download size={14} aria-hidden />} aria-label={`Adopt ${skill.name}`} onClick={adopt.run}>
        Adopt
      </Button>
      <ErrorLine error={adopt.error} />
    </span>
  )
}

function ShelfDetail({ skillId }: { skillId: string }) {
  const query = api.useQuery('get', '/api/v1/skills/public/{skillId}', { params: { path: { skillId } } })
  if (query.isError) return <div className="p-4"><ErrorPanel error={query.error} what="this skill" onRetry={() => void query.refetch()} /></div>
  if (!query.data) return <div className="p-4"><Skeleton className="h-60 w-full" /></div>
  const skill = query.data
  return (
    <div className="flex flex-col gap-3 p-4">
      <div className="flex flex-wrap items-center gap-3">
        <h3 className="font-mono text-sm">{skill.name}</h3>
        {skill.latest_evaluation && <Score {...skill.latest_evaluation} />}
        <Adopt skill={skill} />
      </div>
      <p className="text-muted">{skill.description}</p>
      <Json value={skill.raw_source} label="SKILL.md" />
    </div>
  )
}
