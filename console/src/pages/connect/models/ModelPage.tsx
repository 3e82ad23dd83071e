import { getRouteApi, Link, useNavigate } from '@tanstack/react-router'
import { EllipsisVertical, Trash2, Undo2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { api, client, unwrap } from '@/api/client'
import type { ApiError } from '@/api/error'
import { useAuditReason, useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { invalidate } from '@/api/query'
import { plural } from '@/lib/format'
import { MOD_KEY_LABEL, useShortcuts } from '@/lib/shortcuts'
import { usePersistentState } from '@/lib/usePersistentState'
import { Badge, Button, ConfirmDialog, ErrorLine, ErrorPanel, Menu, MenuItem, Page, Section, Select, Skeleton, Tabs, toast, usePermissionReason } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import { VersionRail } from '@/pages/build/shared/VersionRail'
import { History } from '@/pages/org/audit/History'
import { UseIt } from '../UseIt'
import { definitionText, fromModel, isChanged, toDefinition, type Model, type ModelDraft, type Problems } from './draft'
import { ModelEditor } from './ModelEditor'
import { SaveDialog } from './SaveDialog'
import type { ModelSearch } from './search'
import { Traffic } from './Traffic'
import { Try } from './Try'

const route = getRouteApi('/shell/models/$modelId')

interface Draft {
  /** The version that the draft is based on. */
  base: number
  model: ModelDraft
}

/** One named model: editor, versions, a trial request and how to use it. */
export function ModelPage() {
  const { modelId } = route.useParams()
  const { v } = route.useSearch()
  const { orgId } = useMe()
  const path = { orgId, model: modelId }
  const latest = api.useQuery('get', '/api/v1/orgs/{orgId}/models/{model}', { params: { path } })
  const older = api.useQuery('get', '/api/v1/orgs/{orgId}/models/{model}', { params: { path, query: { version: v ?? 1 } } }, { enabled: v !== undefined })
  const failed = latest.isError ? latest : older.isError ? older : null
  const shown = v === undefined ? latest.data : older.data
  if (failed) {
    return (
      <Page title="Model">
        <ErrorPanel error={failed.error} what="this model" onRetry={() => void failed.refetch()} />
      </Page>
    )
  }
  if (!latest.data || !shown) {
    return (
      <Page title="Model">
        <Skeleton className="h-80 w-full" />
      </Page>
    )
  }
  return <Loaded key={latest.data.id} latest={latest.data} shown={shown} />
}

function Loaded({ latest, shown }: { latest: Model; shown: Model }) {
  const search: ModelSearch = route.useSearch()
  const navigate = route.useNavigate()
  const leave = useNavigate()
  const { orgId } = useMe()
  const { name, id } = latest
  const [draft, setDraft] = usePersistentState<Draft | null>(`model.${id}`, null)
  const [open, setOpen] = useState<'save' | 'restore' | 'delete' | null>(null)
  const [problems, setProblems] = useState<Problems>({})
  const [refusal, setRefusal] = useState<ApiError | null>(null)
  const permissionReason = usePermissionReason('admin')
  const auditReason = useAuditReason()
  const set = (change: Partial<ModelSearch>) => void navigate({ search: (before) => ({ ...before, ...change }) })

  const isOld = shown.version !== latest.version
  // A draft keeps its keys; a stored model is parsed once per version.
  const [parsed, setParsed] = useState({ version: shown.version, model: fromModel(shown) })
  if (parsed.version !== shown.version) setParsed({ version: shown.version, model: fromModel(shown) })
  const edited = isOld ? parsed.model : (draft?.model ?? parsed.model)
  const isDraft = !isOld && draft !== null && isChanged(draft.model, latest)
  const edit = (model: ModelDraft) => {
    setDraft({ base: draft?.base ?? latest.version, model })
    setRefusal(null)
    // A problem disappears once it is solved; new ones are shown when it is saved.
    if (Object.keys(problems).length > 0) setProblems(toDefinition(model).problems)
  }
  const forget = () => {
    setDraft(null)
    setProblems({})
    setRefusal(null)
  }
  const versions = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/models/{model}/versions', { params: { path: { orgId, model: id }, query: { limit: 50 } } }, cursorPaging)
  const known = versions.data?.pages.flatMap((page) => page.versions)

  const save = () => {
    if (!isDraft || permissionReason) return
    const found = toDefinition(edited).problems
    setProblems(found)
    setRefusal(null)
    if (Object.keys(found).length === 0) setOpen('save')
    else set({ view: undefined })
  }
  useShortcuts({ 'mod+s': save })
  const saved = async (model: Model) => {
    await invalidate('/api/v1/orgs/{orgId}/models')
    forget()
    setOpen(null)
    set({ v: undefined, base: undefined, view: search.view === 'diff' ? undefined : search.view })
    toast(`${name} saved as version ${model.version}`)
  }
  const restore = async () => {
    const { definition } = toDefinition(fromModel(shown))
    await saved(await unwrap(client.PUT('/api/v1/orgs/{orgId}/models/{model}', { params: { path: { orgId, model: id } }, body: definition })))
  }
  const remove = async () => {
    await client.DELETE('/api/v1/orgs/{orgId}/models/{model}', { params: { path: { orgId, model: id } } })
    setDraft(null)
    await leave({ to: '/models' })
    await invalidate('/api/v1/orgs/{orgId}/models')
    toast(`${name} deleted`)
  }
  const readOnly = isOld ? `Version ${shown.version} of ${latest.version}. Restore it to edit it.` : permissionReason
  return (
    <Page
      title={name}
      beside={
        <>
          {!latest.enabled && <Badge tone="warn">disabled</Badge>}
          {latest.hidden && <Badge>hidden</Badge>}
        </>
      }
      about={isOld ? `Version ${shown.version} of ${latest.version}` : `Version ${latest.version}${isDraft ? ', with changes that are not saved' : ''}`}
      actions={
        <>
          {isOld ? (
            <Button kind="primary" needs="admin" icon={<Undo2 size={14} aria-hidden />} onClick={() => setOpen('restore')}>
              Restore v{shown.version}
            </Button>
          ) : (
            <>
              {isDraft && <Button onClick={forget}>Discard</Button>}
              <Button kind="primary" needs="admin" blocked={!isDraft && 'No changes'} title={`${MOD_KEY_LABEL}S`} onClick={save}>
                Save…
              </Button>
            </>
          )}
          <Menu trigger={<Button square aria-label="More actions" icon={<EllipsisVertical size={14} aria-hidden />} />}>
            <MenuItem danger needs="admin" icon={<Trash2 size={14} aria-hidden />} onSelect={() => setOpen('delete')}>
              Delete…
            </MenuItem>
          </Menu>
        </>
      }
    >
      <Link to="/models" className="text-xs text-accent underline">
        All models
      </Link>
      {isDraft && draft.base !== latest.version && (
        <p role="status" className="card bg-warn-soft px-3 py-2">
          You started from version {draft.base}; version {latest.version} was saved since. Saving replaces it; the review shows the difference.
        </p>
      )}
      {latest.prompt_cache_pauses.length > 0 && (
        <p role="status" className="card bg-warn-soft px-3 py-2">
          Prompt caching lost money and is paused for {plural(latest.prompt_cache_pauses.length, 'key')}. A new version ends the pauses.
        </p>
      )}
      {!isOld && <ErrorLine error={refusal} />}
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(260px,340px)]">
        <div className="min-w-0">
          <Tabs
            label="View"
            value={search.view ?? 'edit'}
            onChange={(view) => set({ view: view === 'edit' ? undefined : view })}
            items={[
              { value: 'edit', label: 'Route', content: <Panel><ModelEditor draft={edited} problems={isOld ? {} : { ...problems, ...refusal?.fields }} readOnly={readOnly} onChange={edit} /></Panel> },
              { value: 'try', label: 'Try', content: <Panel><Try model={latest} isDraft={isDraft} /></Panel> },
              { value: 'use', label: 'Use it', content: <Panel><UseIt model={name} /></Panel> },
              { value: 'diff', label: 'Changes', content: <Panel><Changes shown={shown} known={known} base={search.base} onBase={(base) => set({ base })} /></Panel> },
              ...(auditReason === null ? [{ value: 'history' as const, label: 'History', content: <Panel><Section flush><History type="model" id={id} /></Section></Panel> }] : []),
            ]}
          />
        </div>
        <div className="flex min-w-0 flex-col gap-4">
          <Traffic model={latest} />
          <VersionRail
            versions={known?.map((version) => ({ version: version.version, at: version.updated_at, by: version.created_by }))}
            error={versions.error}
            onRetry={() => void versions.refetch()}
            shown={shown.version}
            latest={latest.version}
            onShow={(version) => set({ v: version === latest.version ? undefined : version })}
            onCompare={(version) => set({ view: 'diff', base: version })}
            more={versions.hasNextPage}
            busy={versions.isFetchingNextPage}
            onMore={() => void versions.fetchNextPage()}
          />
        </div>
      </div>
      {open === 'save' && (
        <SaveDialog
          latest={latest}
          definition={toDefinition(edited).definition}
          onClose={() => setOpen(null)}
          onSaved={(model) => void saved(model)}
          onRefused={(error) => {
            setRefusal(error)
            setOpen(null)
            set({ view: undefined })
          }}
        />
      )}
      <ConfirmDialog open={open === 'restore'} onClose={() => setOpen(null)} title={`Restore version ${shown.version}?`} action="Restore" onConfirm={restore}>
        Its definition becomes version {latest.version + 1}, from the next request on. No version is lost.
      </ConfirmDialog>
      <ConfirmDialog open={open === 'delete'} onClose={() => setOpen(null)} title={`Delete model ${name}?`} action="Delete model" typeToConfirm={name} onConfirm={remove}>
        All its versions are deleted. Requests for this name are refused, unless a pattern or a provider’s own model has it.
      </ConfirmDialog>
    </Page>
  )
}

const Panel = ({ children }: { children: ReactNode }) => <div className="pt-4">{children}</div>

interface ChangesProps {
  shown: Model
  known: readonly Model[] | undefined
  /** The version to compare with. */
  base: number | undefined
  onBase(version: number): void
}

/** Diff from another version to the displayed one. */
function Changes({ shown, known, base, onBase }: ChangesProps) {
  const others = known?.filter((version) => version.version !== shown.version) ?? []
  const before = others.find((version) => version.version === base) ?? others.find((version) => version.version < shown.version) ?? others[0]
  if (!before) return <p className="text-muted">There is only one version, so nothing to compare with.</p>
  return (
    <div className="flex flex-col gap-3">
      <label className="flex items-center gap-2">
        <span className="text-muted">From</span>
        <Select className="w-28" value={String(before.version)} onChange={(event) => onBase(Number(event.target.value))} options={others.map((version) => ({ value: String(version.version), label: `v${version.version}` }))} />
        <span className="text-muted">to v{shown.version}</span>
      </label>
      <DiffView before={definitionText(before)} after={definitionText(shown)} label={`Changes from v${before.version}`} />
    </div>
  )
}
