import { EllipsisVertical, Tag, Trash2, Undo2 } from 'lucide-react'
import { useState } from 'react'
import { api, client, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, ConfirmDialog, ErrorPanel, Menu, MenuItem, Section, SkeletonRows, toast } from '@/ui'
import { SetLabel } from './SetLabel'

type Prompt = Schemas['Prompt']
type Label = Schemas['PromptLabel']

interface LabelsProps {
  shown: Prompt
  /** Loaded versions, for the comparison before a move. */
  known: readonly Prompt[] | undefined
  onShow(version: number): void
}

type Open = { kind: 'set'; label: string } | { kind: 'back' | 'remove'; label: Label } | null

/** The labels of a prompt: promote a version, roll back, remove. */
export function Labels({ shown, known, onShow }: LabelsProps) {
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const [open, setOpen] = useState<Open>(null)
  const path = { namespace: shown.namespace, slug: shown.slug }
  const name = `${shown.namespace}/${shown.slug}`
  const list = api.useQuery('get', '/api/v1/prompts/{namespace}/{slug}/labels', { params: { path } })
  const labels = list.data?.labels ?? []
  const close = () => setOpen(null)
  const rollBack = async ({ label, version, previous_version: previous }: Label) => {
    if (previous === null) return
    await client.PUT('/api/v1/prompts/{namespace}/{slug}/labels/{label}', { params: { path: { ...path, label } }, body: { version: previous, expected_version: version } })
    await invalidate('/api/v1/prompts')
    toast(`${label} is v${previous} again`)
  }
  const remove = async ({ label }: Label) => {
    await client.DELETE('/api/v1/prompts/{namespace}/{slug}/labels/{label}', { params: { path: { ...path, label } } })
    await invalidate('/api/v1/prompts')
    toast(`Removed ${label}`)
  }
  return (
    <Section
      flush
      title="Labels"
      aside={
        <Button size="sm" needs="member" icon={<Tag size={14} aria-hidden />} onClick={() => setOpen({ kind: 'set', label: '' })}>
          Label v{shown.version}
        </Button>
      }
    >
      {list.isError ? (
        <div className="p-3">
          <ErrorPanel error={list.error} what="the labels" onRetry={() => void list.refetch()} />
        </div>
      ) : !list.data ? (
        <SkeletonRows rows={1} />
      ) : labels.length === 0 ? (
        <p className="px-3 pt-1 pb-3 text-xs text-muted">
          A label such as <code>production</code> points to one version. Requests name it as <code className="break-all">{name}@production</code>, and you decide here which version that is.
        </p>
      ) : (
        <ul aria-label="Labels">
          {labels.map((one) => (
            <li key={one.label} className="flex min-h-10 flex-wrap items-center gap-x-2 border-t border-line px-3 py-1">
              <Badge tone="accent">{one.label}</Badge>
              <button type="button" className="min-h-6 font-medium tabular-nums underline" onClick={() => onShow(one.version)}>
                v{one.version}
              </button>
              <span className="min-w-0 flex-1 truncate text-xs text-muted" title={time(one.updated_at, zone, 'full')}>
                {ago(one.updated_at, Math.max(now, Date.parse(one.updated_at)))}
              </span>
              {one.version !== shown.version && (
                <Button size="sm" needs="member" aria-label={`Move to v${shown.version}: ${one.label}`} onClick={() => setOpen({ kind: 'set', label: one.label })}>
                  Move to v{shown.version}
                </Button>
              )}
              <Menu trigger={<Button size="sm" kind="ghost" square aria-label={`More of ${one.label}`} icon={<EllipsisVertical size={14} aria-hidden />} />}>
                <MenuItem needs="member" icon={<Undo2 size={14} aria-hidden />} blocked={(one.previous_version === null || one.previous_version === one.version) && 'It was never moved'} onSelect={() => setOpen({ kind: 'back', label: one })}>
                  {one.previous_version === null ? 'Roll back' : `Roll back to v${one.previous_version}`}
                </MenuItem>
                <MenuItem danger needs="member" icon={<Trash2 size={14} aria-hidden />} onSelect={() => setOpen({ kind: 'remove', label: one })}>
                  Remove label
                </MenuItem>
              </Menu>
            </li>
          ))}
        </ul>
      )}
      {open?.kind === 'set' && <SetLabel shown={shown} known={known} labels={labels} initial={open.label} onClose={close} />}
      {open?.kind === 'back' && (
        <ConfirmDialog open onClose={close} tone="primary" title={`Roll back ${open.label.label} to v${open.label.previous_version}?`} action="Roll back" onConfirm={() => rollBack(open.label)}>
          Requests that name <code>{name}@{open.label.label}</code> use v{open.label.previous_version} instead of v{open.label.version} from the next request on.
        </ConfirmDialog>
      )}
      {open?.kind === 'remove' && (
        <ConfirmDialog open onClose={close} title={`Remove the label ${open.label.label}?`} action="Remove label" onConfirm={() => remove(open.label)}>
          Requests that name <code>{name}@{open.label.label}</code> are refused with 400 from then on. No version is deleted.
        </ConfirmDialog>
      )}
    </Section>
  )
}
