import { getRouteApi } from '@tanstack/react-router'
import { LibraryBig } from 'lucide-react'
import { lazy, Suspense } from 'react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { licenceText } from '@/lib/frontmatter'
import { plural } from '@/lib/format'
import { DockedDrawer, Empty, ErrorPanel, Input, NoMatch, Page, Pager, Select, Skeleton, SkeletonCards } from '@/ui'
import { Json } from '@/ui/Json'
import { EvaluationPart } from './Evaluation'
import { Score } from './Score'
import { CopySkill, Publisher, ShelfCard } from './ShelfCard'
import { SORTS, type ShelfSearch } from './search'
import { SkillsLayout } from './SkillsLayout'

const Markdown = lazy(() => import('@/ui/Markdown'))
const route = getRouteApi('/shell/shelf')

/** The shelf: published skills of all organizations. */
export function Shelf() {
  const search: ShelfSearch = route.useSearch()
  const navigate = route.useNavigate()
  const set = (change: Partial<ShelfSearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  return (
    <DockedDrawer open={search.skill !== undefined} onClose={() => set({ skill: undefined })} label="Skill of the shelf" head={<h2 className="py-1 text-base">On the shelf</h2>} content={search.skill && <ShelfDetail skillId={search.skill} />}>
      <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">
        <Page title="Shelf" about="Skills published by organizations on this server">
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
          <Input key={q ?? ''} type="search" aria-label="Find on the shelf" placeholder="Find a skill" className="max-w-72" defaultValue={q ?? ''} onBlur={(event) => set({ q: event.target.value.trim() || undefined })} onKeyDown={(event) => event.key === 'Enter' && set({ q: event.currentTarget.value.trim() || undefined })} />
          <Select aria-label="Order" className="w-40" value={sort ?? 'recent'} onChange={(event) => set({ sort: SORTS.find((one) => one === event.target.value) })} options={[{ value: 'recent', label: 'Newest first' }, { value: 'adoptions', label: 'Most copied' }, { value: 'score', label: 'Best score' }]} />
        </div>
      )}
      {!list.data ? (
        <SkeletonCards cards={6} className="h-36" />
      ) : skills.length === 0 ? (
        q ? (
          <NoMatch what="skills" onClear={() => set({ q: undefined })} />
        ) : (
          <Empty icon={<LibraryBig size={24} aria-hidden />} title="The shelf is empty">
            Publish a skill that passed its evaluation, and every organization on this server can copy it.
          </Empty>
        )
      ) : (
        <>
          <ul className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,280px),1fr))] gap-3" aria-label="Shelf">
            {skills.map((skill) => (
              <ShelfCard key={skill.id} skill={skill} onOpen={() => set({ skill: skill.id })} />
            ))}
          </ul>
          {list.hasNextPage && <Pager shown={skills.length} what="skills" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </>
      )}
    </>
  )
}

/** How the published version was judged. Only the publisher may read the scores by axis. */
function Verdict({ skill }: { skill: Schemas['Skill'] }) {
  const me = useMe()
  const isOwn = skill.org_id === me.orgId
  const evaluations = api.useQuery('get', '/api/v1/skills/{skillId}/evaluations', { params: { path: { skillId: skill.id }, query: { limit: 100 } } }, { enabled: isOwn, staleTime: 60_000 })
  const rubric = api.useQuery('get', '/api/v1/skills/rubric', {}, { enabled: isOwn, staleTime: 60_000 })
  if (isOwn && evaluations.data && rubric.data) return <EvaluationPart evaluations={evaluations.data.evaluations} version={skill.published_version ?? skill.version} threshold={rubric.data.pass_threshold} />
  const verdict = skill.latest_evaluation
  if (!verdict) return <p className="text-xs text-muted">Not evaluated yet</p>
  return (
    <p className="text-xs text-muted">
      Version {verdict.version} {verdict.passed ? 'passed' : 'did not pass'} with a score of {verdict.score.toFixed(2)}, given by {verdict.source === 'internal' ? 'the gateway’s judge' : <code>{verdict.source}</code>}
    </p>
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
        <CopySkill skill={skill} />
      </div>
      <p className="text-xs text-muted">
        By <Publisher skill={skill} />, version {skill.published_version ?? skill.version}, {licenceText(skill.raw_source)}, {plural(skill.adoptions, 'copy', 'copies')}
      </p>
      <p className="text-muted">{skill.description}</p>
      <Verdict skill={skill} />
      <div className="card p-3" role="region" aria-label="SKILL.md">
        <Suspense fallback={<Skeleton className="h-40 w-full" />}>
          <Markdown text={skill.body} />
        </Suspense>
      </div>
      <details>
        <summary className="min-h-6 cursor-pointer text-xs text-muted">Source with front matter</summary>
        <Json value={skill.raw_source} label="Source" />
      </details>
    </div>
  )
}
