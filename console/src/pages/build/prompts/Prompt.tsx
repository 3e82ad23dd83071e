import { getRouteApi, Link, useNavigate } from '@tanstack/react-router'
import { EllipsisVertical, FlaskConical, Play, Trash2, Undo2 } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useAuditReason } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { invalidate } from '@/api/query'
import { cx } from '@/lib/cx'
import { MOD_KEY_LABEL, useShortcuts } from '@/lib/shortcuts'
import { usePersistentState } from '@/lib/usePersistentState'
import { labelsOf } from '@/lib/promptVersions'
import { variablesOf } from '@/lib/template'
import { Badge, Button, ConfirmDialog, ErrorPanel, Menu, MenuItem, Page, Section, Select, Skeleton, Snippets, Tabs, toast, usePermissionReason } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import { History } from '@/pages/org/audit/History'
import { EvaluatePrompt } from '../shared/EvaluatePrompt'
import { VersionRail } from '../shared/VersionRail'
import { Labels } from './Labels'
import { Preview } from './Preview'
import { PromptTree } from './PromptTree'
import { SaveDialog, VariableChanges } from './SaveDialog'
import type { PromptSearch } from './search'
import { promptSnippets } from './snippets'
import { TemplateEditor } from './TemplateEditor'
import { VersionUsage } from './VersionUsage'

const route = getRouteApi('/shell/prompts/$namespace/$slug')
type Prompt = Schemas['Prompt']

interface Draft {
  /** The version that the draft is based on. */
  base: Prompt
  content: string
}

/** One prompt: editor, versions, diff and preview. */
export function PromptPage() {
  const { namespace, slug } = route.useParams()
  const { v } = route.useSearch()
  const path = { namespace, slug }
  const latest = api.useQuery('get', '/api/v1/prompts/{namespace}/{slug}', { params: { path } })
  const older = api.useQuery('get', '/api/v1/prompts/{namespace}/{slug}/versions/{version}', { params: { path: { ...path, version: v ?? 1 } } }, { enabled: v !== undefined })
  const failed = latest.isError ? latest : older.isError ? older : null
  const shown = v === undefined ? latest.data : older.data
  return (
    <div className="flex min-h-0 flex-1">
      <PromptTree />
      <div className="flex min-w-0 flex-1 flex-col overflow-y-auto">
        {failed ? (
          <Page title={`${namespace}/${slug}`}>
            <ErrorPanel error={failed.error} what="this prompt" onRetry={() => void failed.refetch()} />
          </Page>
        ) : !latest.data || !shown ? (
          <Page title={`${namespace}/${slug}`}>
            <Skeleton className="h-80 w-full" />
          </Page>
        ) : (
          <Loaded key={`${namespace}/${slug}`} latest={latest.data} shown={shown} />
        )}
      </div>
    </div>
  )
}

function Loaded({ latest, shown }: { latest: Prompt; shown: Prompt }) {
  const search: PromptSearch = route.useSearch()
  const navigate = route.useNavigate()
  const leave = useNavigate()
  const { namespace, slug } = latest
  const name = `${namespace}/${slug}`
  const [draft, setDraft] = usePersistentState<Draft | null>(`prompt.${name}`, null)
  const [values, setValues] = usePersistentState<Record<string, string>>(`values.${name}`, {})
  const [open, setOpen] = useState<'save' | 'restore' | 'delete' | 'evaluate' | null>(null)
  const permissionReason = usePermissionReason('member')
  const auditReason = useAuditReason()
  const set = (change: Partial<PromptSearch>) => void navigate({ search: (before) => ({ ...before, ...change }) })

  const show = (version: number) => set({ v: version === latest.version ? undefined : version })
  const isOld = shown.version !== latest.version
  const content = isOld ? shown.content : (draft?.content ?? latest.content)
  const isDraft = !isOld && draft !== null && draft.content !== latest.content
  const edit = (next: string) => setDraft(next === latest.content ? null : { base: draft?.base ?? latest, content: next })
  const versions = api.useInfiniteQuery('get', '/api/v1/prompts/{namespace}/{slug}/versions', { params: { path: { namespace, slug }, query: { limit: 50 } } }, cursorPaging)
  const known = versions.data?.pages.flatMap((page) => page.versions)
  // Tables need the whole width: preview, labels and versions are below them.
  const isTable = search.view === 'history' || search.view === 'usage'
  const save = () => isDraft && !permissionReason && setOpen('save')
  useShortcuts({ 'mod+s': save })

  const saved = async (prompt: Prompt) => {
    await invalidate('/api/v1/prompts')
    setDraft(null)
    setOpen(null)
    set({ v: undefined, view: undefined, base: undefined })
    toast(`Saved as version ${prompt.version}`)
  }
  const restore = async () => {
    const created = await unwrap(client.PUT('/api/v1/prompts/{namespace}/{slug}', { params: { path: { namespace, slug } }, body: { content: shown.content, expected_version: latest.version } }))
    await saved(created)
  }
  const remove = async () => {
    await client.DELETE('/api/v1/prompts/{namespace}/{slug}', { params: { path: { namespace, slug } } })
    setDraft(null)
    await invalidate('/api/v1/prompts')
    await leave({ to: '/prompts' })
  }
  const base = known?.find((version) => version.version === search.base) ?? known?.find((version) => version.version < shown.version)
  return (
    <Page
      title={name}
      beside={<LabelBadges labels={labelsOf(shown.version, latest.labels)} />}
      about={isOld ? `Version ${shown.version} of ${latest.version}` : `Version ${latest.version}${isDraft ? ', with changes that are not saved' : ''}`}
      actions={
        <>
          <Button icon={<Play size={14} aria-hidden />} onClick={() => void leave({ to: '/playground', search: { prompt: `${name}@${shown.version}` } })}>
            Playground
          </Button>
          <Button icon={<FlaskConical size={14} aria-hidden />} needs="member" onClick={() => setOpen('evaluate')}>
            Evaluate
          </Button>
          {isOld ? (
            <Button kind="primary" needs="member" icon={<Undo2 size={14} aria-hidden />} onClick={() => setOpen('restore')}>
              Restore v{shown.version}
            </Button>
          ) : (
            <>
              {isDraft && <Button onClick={() => setDraft(null)}>Discard</Button>}
              <Button kind="primary" needs="member" blocked={!isDraft && 'No changes'} title={`${MOD_KEY_LABEL}S`} onClick={save}>
                Save…
              </Button>
            </>
          )}
          <Menu trigger={<Button square aria-label="More" icon={<EllipsisVertical size={14} aria-hidden />} />}>
            <MenuItem danger needs="member" icon={<Trash2 size={14} aria-hidden />} onSelect={() => setOpen('delete')}>
              Delete prompt
            </MenuItem>
          </Menu>
        </>
      }
    >
      <Link to="/prompts" className="text-xs text-accent underline xl:hidden">
        All prompts
      </Link>
      {!isOld && draft && draft.base.version !== latest.version && (
        <p role="status" className="card bg-warn-soft px-3 py-2">
          You started from version {draft.base.version}; version {latest.version} was saved since. You can resolve this when you save.
        </p>
      )}
      <div className={cx('grid items-start gap-4', !isTable && 'lg:grid-cols-[minmax(0,1fr)_minmax(260px,340px)]')}>
        <Section flush>
          <Tabs
            label="View"
            value={search.view ?? 'text'}
            onChange={(view) => set({ view: view === 'text' ? undefined : view })}
            items={[
              {
                value: 'text',
                label: 'Text',
                content: (
                  <div className="p-3">
                    <TemplateEditor label="Text of the prompt" value={content} onChange={edit} readOnly={isOld || permissionReason !== null} rows={18} />
                    {permissionReason && <p className="mt-2 text-xs text-muted">{permissionReason}</p>}
                  </div>
                ),
              },
              { value: 'diff', label: 'Changes', content: <Changes shown={shown} content={content} isDraft={isDraft} base={isDraft && search.base === undefined ? latest : base} known={known} split={search.split === 'yes'} set={set} /> },
              { value: 'use', label: 'Use it', content: <div className="p-3"><Snippets label="Language" snippets={promptSnippets(location.origin, name, { ...shown, labels: latest.labels })} /></div> },
              { value: 'usage', label: 'Usage and scores', content: <VersionUsage namespace={namespace} slug={slug} shown={shown.version} onShow={show} /> },
              ...(auditReason === null ? [{ value: 'history' as const, label: 'History', content: <History type="prompt" id={name} /> }] : []),
            ]}
          />
        </Section>
        <div className={cx('min-w-0 gap-4', isTable ? 'grid items-start md:grid-cols-2 2xl:grid-cols-3' : 'flex flex-col')}>
          <Preview namespace={namespace} slug={slug} version={isDraft ? null : shown.version} content={content} variables={variablesOf(content)} values={values} onValues={setValues} />
          <Labels shown={shown} known={known} onShow={show} />
          <VersionRail
            versions={known?.map((version) => ({ version: version.version, at: version.updated_at, by: version.created_by, note: <LabelBadges labels={labelsOf(version.version, latest.labels)} /> }))}
            error={versions.error}
            onRetry={() => void versions.refetch()}
            shown={shown.version}
            latest={latest.version}
            onShow={show}
            onCompare={(version) => set({ view: 'diff', base: version })}
            more={versions.hasNextPage}
            busy={versions.isFetchingNextPage}
            onMore={() => void versions.fetchNextPage()}
          />
        </div>
      </div>
      {open === 'evaluate' && <EvaluatePrompt prompt={{ namespace, slug, version: shown.version }} onClose={() => setOpen(null)} />}
      {open === 'save' && draft && (
        <SaveDialog
          base={draft.base}
          draft={draft.content}
          onClose={() => setOpen(null)}
          onSaved={(prompt) => void saved(prompt)}
          onTheirs={(theirs, merged) => {
            setDraft(merged === null ? null : { base: theirs, content: merged })
            setOpen(null)
            void invalidate('/api/v1/prompts')
          }}
        />
      )}
      <ConfirmDialog open={open === 'restore'} onClose={() => setOpen(null)} title={`Restore version ${shown.version}?`} action="Restore" onConfirm={restore}>
        Its text becomes version {latest.version + 1}. No version is lost.
      </ConfirmDialog>
      <ConfirmDialog open={open === 'delete'} onClose={() => setOpen(null)} title={`Delete prompt ${name}?`} action="Delete prompt" typeToConfirm={name} onConfirm={remove}>
        All its versions are deleted, and requests that name it are refused.
      </ConfirmDialog>
    </Page>
  )
}

function LabelBadges({ labels }: { labels: readonly string[] }) {
  return labels.map((label) => (
    <Badge key={label} tone="accent">
      {label}
    </Badge>
  ))
}

interface ChangesProps {
  shown: Prompt
  content: string
  isDraft: boolean
  base: Prompt | undefined
  known: readonly Prompt[] | undefined
  split: boolean
  set(change: Partial<PromptSearch>): void
}

/** Diff from another version to the displayed one. */
function Changes({ shown, content, isDraft, base, known, split, set }: ChangesProps) {
  const others = known?.filter((version) => isDraft || version.version !== shown.version) ?? []
  if (!base || others.length === 0) return <p className="p-3 text-muted">There is only one version, so nothing to compare with.</p>
  return (
    <div className="flex flex-col gap-3 p-3">
      <div className="flex flex-wrap items-center gap-2">
        <label className="flex items-center gap-2">
          <span className="text-muted">From</span>
          <Select className="w-28" value={String(base.version)} onChange={(event) => set({ base: Number(event.target.value) })} options={others.map((version) => ({ value: String(version.version), label: `v${version.version}` }))} />
        </label>
        <span className="text-muted">to {isDraft ? 'the draft' : `v${shown.version}`}</span>
        <Button size="sm" kind="ghost" className="ml-auto max-md:hidden" aria-pressed={split} onClick={() => set({ split: split ? undefined : 'yes' })}>
          {split ? 'Unified' : 'Side by side'}
        </Button>
      </div>
      <VariableChanges before={base.content} after={content} />
      <DiffView before={base.content} after={content} label={`Changes from v${base.version}`} split={split} />
    </div>
  )
}
