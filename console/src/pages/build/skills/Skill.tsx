import { getRouteApi, Link, useNavigate } from '@tanstack/react-router'
import { EllipsisVertical, Trash2 } from 'lucide-react'
import { useMemo, useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { invalidate } from '@/api/query'
import { validateSkillSource } from '@/lib/frontmatter'
import { findingCount, findingsInText } from '@/lib/safetyFindings'
import { plural } from '@/lib/format'
import { usePersistentState } from '@/lib/usePersistentState'
import { MOD_KEY_LABEL, useShortcuts } from '@/lib/shortcuts'
import { useAction } from '@/lib/useAction'
import { Badge, Button, Code, ConfirmDialog, ErrorLine, ErrorPanel, Menu, MenuItem, Page, PlanGate, Section, Skeleton, Tabs, toast, usePermissionReason } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import { VersionRail } from '../shared/VersionRail'
import { EvaluationPart, VerdictList } from './Evaluation'
import { Publish } from './Publish'
import type { SkillSearch } from './search'
import { SourceEditor } from './SourceEditor'

const route = getRouteApi('/shell/skills/$skillId')
type Skill = Schemas['Skill']

/** One skill: source, evaluation and publishing. */
export function SkillPage() {
  const { skillId } = route.useParams()
  return (
    <PlanGate needs="skill_marketplace" name="Skills" about="Instructions for agents, evaluated before they are shared.">
      <Loading skillId={skillId} />
    </PlanGate>
  )
}

function Loading({ skillId }: { skillId: string }) {
  const query = api.useQuery('get', '/api/v1/skills/{skillId}', { params: { path: { skillId } } })
  if (query.isError) {
    return (
      <Page title="Skill">
        <ErrorPanel error={query.error} what="this skill" onRetry={() => void query.refetch()} />
      </Page>
    )
  }
  if (!query.data) {
    return (
      <Page title="Skill">
        <Skeleton className="h-96 w-full" />
      </Page>
    )
  }
  return <Loaded key={skillId} skill={query.data} />
}

function Loaded({ skill }: { skill: Skill }) {
  const search: SkillSearch = route.useSearch()
  const navigate = route.useNavigate()
  const leave = useNavigate()
  const path = { skillId: skill.id }
  const [draft, setDraft] = usePersistentState<string | null>(`skill.${skill.id}`, null)
  const [confirming, setConfirming] = useState(false)
  const [waitFor, setWaitFor] = useState<number | null>(null)
  const permissionReason = usePermissionReason('member')
  const set = (change: Partial<SkillSearch>) => void navigate({ search: (before) => ({ ...before, ...change }) })

  const rubric = api.useQuery('get', '/api/v1/skills/rubric', {}, { staleTime: 60_000 })
  const evaluations = api.useQuery('get', '/api/v1/skills/{skillId}/evaluations', { params: { path, query: { limit: 100 } } }, {
    meta: { quiet: true },
    refetchInterval: ({ state }) => {
      const found = state.data?.evaluations ?? []
      const shouldPoll = waitFor === null ? !found.some((one) => one.skill_version === skill.version) : found.length <= waitFor
      return shouldPoll && state.dataUpdateCount < 60 ? 1500 : false
    },
  })
  const verdicts = evaluations.data?.evaluations ?? []
  const versions = api.useInfiniteQuery('get', '/api/v1/skills/{skillId}/versions', { params: { path, query: { limit: 50 } } }, cursorPaging)
  const known = versions.data?.pages.flatMap((page) => page.versions)
  const shown = search.v === undefined || search.v === skill.version ? null : known?.find((version) => version.version === search.v)
  const text = shown?.raw_source ?? draft ?? skill.raw_source
  const safety = verdicts.find((one) => one.skill_version === (shown?.version ?? skill.version) && (one.axes['safety']?.score ?? 1) < 1)?.axes['safety']?.rationale ?? ''
  const findings = useMemo(() => findingsInText(safety, text), [safety, text])
  const found = findingCount(safety)
  const isDraft = !shown && draft !== null && draft !== skill.raw_source

  const put = async (source: string) => {
    const saved = await unwrap(client.PUT('/api/v1/skills/{skillId}', { params: { path }, body: { raw_source: source } }))
    await invalidate('/api/v1/skills')
    setDraft(null)
    set({ v: undefined })
    toast(`Saved as version ${saved.version}; it is being evaluated`)
  }
  const save = useAction(() => put(text))
  const blocked = shown ? 'An old version cannot be changed' : !isDraft ? 'No changes' : validateSkillSource(text).length > 0 ? 'The front matter has problems' : false
  useShortcuts({ 'mod+s': () => !blocked && !permissionReason && save.run() })
  const remove = async () => {
    await client.DELETE('/api/v1/skills/{skillId}', { params: { path } })
    setDraft(null)
    await leave({ to: '/skills' })
    await invalidate('/api/v1/skills')
  }
  const base = known?.find((version) => version.version === search.base) ?? known?.find((version) => version.version < (shown?.version ?? skill.version))
  const compared = isDraft && search.base === undefined ? { version: skill.version, raw_source: skill.raw_source } : base
  return (
    <Page
      title={skill.name}
      beside={<Badge tone={skill.published_version === null ? 'muted' : 'accent'}>{skill.published_version === null ? 'private' : 'on the shelf'}</Badge>}
      about={skill.headline || skill.description}
      actions={
        <>
          <Link to="/skills" className="btn">
            All skills
          </Link>
          {isDraft && <Button onClick={() => setDraft(null)}>Discard</Button>}
          {shown ? (
            <Button kind="primary" needs="member" busy={save.busy} onClick={save.run}>
              Restore v{shown.version}
            </Button>
          ) : (
            <Button kind="primary" needs="member" busy={save.busy} blocked={blocked} title={`${MOD_KEY_LABEL}S`} onClick={save.run}>
              Save version
            </Button>
          )}
          <Menu trigger={<Button square aria-label="More" icon={<EllipsisVertical size={14} aria-hidden />} />}>
            <MenuItem danger needs="member" icon={<Trash2 size={14} aria-hidden />} onSelect={() => setConfirming(true)}>
              Delete skill
            </MenuItem>
          </Menu>
        </>
      }
    >
      <Source skill={skill} />
      {found > 0 && (
        <p role="status" className="rounded-sm border border-line bg-err-soft px-3 py-2 text-err">
          Blocked by {plural(found, 'safety finding')}{findings.length > 0 ? `: ${findings.map((finding) => `line ${finding.line}`).join(', ')}, marked in the text` : isDraft ? '. The draft no longer has these passages' : '. See the safety axis of the evaluation'}.
          {findings.length > 0 && findings.length < found && ` ${plural(found - findings.length, 'passage')} not found in this text.`}
        </p>
      )}
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(300px,380px)]">
        <Section flush>
          <Tabs
            label="View"
            value={search.view ?? 'text'}
            onChange={(view) => set({ view: view === 'text' ? undefined : view })}
            items={[
              {
                value: 'text',
                label: shown ? `Text of v${shown.version}` : 'Text',
                content: (
                  <div className="flex flex-col gap-2 p-3">
                    <SourceEditor value={text} onChange={setDraft} readOnly={shown != null || permissionReason !== null} findings={findings} refused={save.error} />
                    {permissionReason && <p className="text-xs text-muted">{permissionReason}</p>}
                    {save.error?.code !== 'invalid_frontmatter' && <ErrorLine error={save.error} />}
                  </div>
                ),
              },
              { value: 'changes', label: 'Changes', content: <div className="flex flex-col gap-2 p-3">{compared ? <><p className="text-muted">From v{compared.version} to {isDraft ? 'the draft' : `v${shown?.version ?? skill.version}`}</p><DiffView before={compared.raw_source} after={text} label="Changes" /></> : <p className="text-muted">There is only one version.</p>}</div> },
              { value: 'use', label: 'Use it', content: <UseSkill skill={skill} /> },
            ]}
          />
        </Section>
        <div className="flex min-w-0 flex-col gap-4">
          <Publish skill={skill} evaluations={verdicts} allowed={rubric.data?.allowed_verdict_sources ?? []} threshold={rubric.data?.pass_threshold} onJudging={() => { setWaitFor(verdicts.length); void evaluations.refetch() }} />
          {evaluations.isError ? (
            <ErrorPanel error={evaluations.error} what="the verdicts" onRetry={() => void evaluations.refetch()} />
          ) : !evaluations.data || !rubric.data ? (
            <Skeleton className="h-80 w-full" />
          ) : (
            <>
              <EvaluationPart evaluations={verdicts} version={shown?.version ?? skill.version} threshold={rubric.data.pass_threshold} />
              <VerdictList evaluations={verdicts} allowed={rubric.data.allowed_verdict_sources} />
            </>
          )}
          <VersionRail
            versions={known?.map((version) => ({ version: version.version, at: version.created_at, by: version.created_by, note: version.version === skill.published_version && <Badge tone="ok">on the shelf</Badge> }))}
            error={versions.error}
            onRetry={() => void versions.refetch()}
            shown={shown?.version ?? skill.version}
            latest={skill.version}
            onShow={(version) => set({ v: version === skill.version ? undefined : version })}
            onCompare={(version) => set({ view: 'changes', base: version })}
            more={versions.hasNextPage}
            busy={versions.isFetchingNextPage}
            onMore={() => void versions.fetchNextPage()}
          />
        </div>
      </div>
      <ConfirmDialog open={confirming} onClose={() => setConfirming(false)} title={`Delete skill ${skill.name}?`} action="Delete skill" typeToConfirm={skill.name} onConfirm={remove}>
        All its versions are deleted, and it is withdrawn from the shelf. Existing copies stay.
      </ConfirmDialog>
    </Page>
  )
}

/** State of the shelf entry that this skill was copied from. */
function Source({ skill }: { skill: Skill }) {
  const id = skill.source_skill_id
  const source = api.useQuery('get', '/api/v1/skills/public/{skillId}', { params: { path: { skillId: id ?? '' } } }, { enabled: id !== null && skill.source_status !== 'withdrawn', staleTime: 60_000, retry: false, meta: { quiet: true } }).data
  if (!id) return null
  const words = { current: 'up to date', updated: 'a newer version is on the shelf', withdrawn: 'withdrawn from the shelf' }
  return (
    <p className="card px-3 py-2 text-muted">
      Copied from {source ? <Link to="/shelf" search={{ skill: id }} className="text-accent underline">{source.publisher ?? '–'}/{source.name}</Link> : 'the shelf'}{skill.source_version != null && `, version ${skill.source_version}`}{skill.source_status && ` (${words[skill.source_status]})`}
    </p>
  )
}

/** Where an agent looks for the file, and how it gets there. */
function UseSkill({ skill }: { skill: Skill }) {
  const folder = `~/.claude/skills/${skill.name}`
  return (
    <div className="flex flex-col gap-2 p-3">
      <p className="text-muted">
        Agents load skills from a folder with the name of the skill: <code>~/.claude/skills</code> for Claude Code, <code>~/.codex/skills</code> for Codex, or <code>.claude/skills</code> in a repository.
      </p>
      <Code label="Load the file" code={`mkdir -p ${folder}\ncurl ${location.origin}/api/v1/skills/${skill.id}/SKILL.md \\\n  -H "X-Gateway-Key: $GATEWAY_KEY" -o ${folder}/SKILL.md`} />
      <p className="text-muted">
        To install all skills that passed, and to keep them up to date, use the commands under{' '}
        <Link to="/skills/install" className="text-accent underline">
          Install
        </Link>
        .
      </p>
    </div>
  )
}
