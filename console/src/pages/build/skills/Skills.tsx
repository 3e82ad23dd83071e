import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { Plus, Sparkles } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, Empty, ErrorPanel, Input, NoMatch, Page, Pager, Section, SkeletonRows, Table, type Column } from '@/ui'
import { FromShelf } from './FromShelf'
import { NewSkill } from './NewSkill'
import { Score } from './Score'
import { SkillsLayout } from './SkillsLayout'

const route = getRouteApi('/shell/skills')
type Skill = Schemas['Skill']

/** The skills of this organization. */
export function Skills() {
  const [creating, setCreating] = useState(false)
  const me = useMe()
  const create = (
    <Button kind="primary" needs="member" icon={<Plus size={14} aria-hidden />} onClick={() => setCreating(true)}>
      New skill
    </Button>
  )
  return (
    <Page title="Skills" about="Instructions for agents, evaluated before they are shared" actions={me.hasEntitlement('skill_marketplace') && create}>
      <SkillsLayout current="mine">
        <List action={create} />
      </SkillsLayout>
      {creating && <NewSkill onClose={() => setCreating(false)} />}
    </Page>
  )
}

function List({ action }: { action: ReactNode }) {
  const { q = '' } = route.useSearch()
  const navigate = useNavigate()
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const list = api.useInfiniteQuery('get', '/api/v1/skills', { params: { query: { limit: 100 } } }, { ...cursorPaging, refetchInterval: (query) => (query.state.data?.pages.some((page) => page.skills.some((skill) => skill.latest_evaluation === null)) && query.state.dataUpdateCount < 20 ? 2000 : false), meta: { quiet: true } })
  const skills = list.data?.pages.flatMap((page) => page.skills) ?? []
  const found = skills.filter((skill) => `${skill.name} ${skill.headline} ${skill.description}`.toLowerCase().includes(q.toLowerCase()))
  const search = (next: string) => void navigate({ to: '/skills', search: { q: next || undefined }, replace: true })
  const columns: Column<Skill>[] = [
    { key: 'name', header: 'Skill', className: 'name max-w-56 truncate', cell: (row) => <code className="font-medium">{row.name}</code> },
    { key: 'headline', header: 'Description', className: 'max-w-80 truncate text-muted', from: 'md', cell: (row) => row.headline || row.description },
    { key: 'version', header: 'Version', number: true, from: 'sm', cell: (row) => `v${row.version}` },
    { key: 'shelf', header: 'Shelf', from: 'sm', cell: (row) => <OnShelf skill={row} /> },
    { key: 'score', header: 'Evaluation', cell: (row) => (row.latest_evaluation ? <Score {...row.latest_evaluation} /> : <span className="text-muted">being evaluated</span>) },
    { key: 'changed', header: 'Changed', from: 'lg', cell: (row) => <time dateTime={row.updated_at} title={time(row.updated_at, zone, 'full')} className="whitespace-nowrap">{ago(row.updated_at, now)}</time> },
  ]
  if (list.isError) return <ErrorPanel error={list.error} what="the skills" onRetry={() => void list.refetch()} />
  if (!list.data) return <Section flush><SkeletonRows /></Section>
  if (skills.length === 0) {
    return (
      <>
        <Empty icon={<Sparkles size={24} aria-hidden />} title="No skills yet" action={action}>
          A skill is a SKILL.md file: a name, a description that tells agents when to load it, and instructions. Write one, or copy one from the shelf.
        </Empty>
        <FromShelf />
      </>
    )
  }
  return (
    <>
      <Input type="search" aria-label="Find a skill" placeholder="Find a skill" className="max-w-72" value={q} onChange={(event) => search(event.target.value)} />
      {found.length === 0 ? (
        <NoMatch what="skills" onClear={() => search('')} />
      ) : (
        <Section flush>
          <Table label="Skills" columns={columns} rows={found} rowKey={(row) => row.id} onOpen={(row) => void navigate({ to: '/skills/$skillId', params: { skillId: row.id } })} />
          <Pager shown={found.length} what="skills" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
        </Section>
      )}
    </>
  )
}

function OnShelf({ skill }: { skill: Skill }) {
  if (skill.published_version === null) return <Badge>private</Badge>
  if (skill.published_version === skill.version) return <Badge tone="accent">on the shelf</Badge>
  return <Badge tone="warn" title={`The shelf serves v${skill.published_version}, you have v${skill.version}`}>shelf has v{skill.published_version}</Badge>
}
