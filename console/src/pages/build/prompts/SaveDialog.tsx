import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import type { ApiError } from '@/api/error'
import { rebase } from '@/lib/rebase'
import { variablesOf } from '@/lib/template'
import { useAction } from '@/lib/useAction'
import { Badge, Button, Dialog, ErrorLine, Tabs } from '@/ui'
import { DiffView } from '@/ui/DiffView'

type Prompt = Schemas['Prompt']

interface SaveDialogProps {
  /** The version that the change is based on. */
  base: Prompt
  draft: string
  onClose(): void
  onSaved(saved: Prompt): void
  /** Conflict resolution: discard the draft, or rebase it onto the newer version. */
  onTheirs(theirs: Prompt, draft: string | null): void
}

/** Diff before saving. If a newer version exists, offers conflict resolution. */
export function SaveDialog({ base, draft, onClose, onSaved, onTheirs }: SaveDialogProps) {
  const [theirs, setTheirs] = useState<Prompt | null>(null)
  const path = { namespace: base.namespace, slug: base.slug }
  const save = useAction(async (expected: number) => {
    try {
      onSaved(await unwrap(client.PUT('/api/v1/prompts/{namespace}/{slug}', { params: { path }, body: { content: draft, expected_version: expected } })))
    } catch (failure) {
      if ((failure as ApiError).status !== 409) throw failure
      setTheirs(await unwrap(client.GET('/api/v1/prompts/{namespace}/{slug}', { params: { path } })))
    }
  })
  if (theirs) return <Conflict base={base} draft={draft} theirs={theirs} busy={save.busy} error={save.error} onClose={onClose} onOverwrite={() => save.run(theirs.version)} onTheirs={onTheirs} />
  return (
    <Dialog
      open
      size="lg"
      onClose={onClose}
      title={`Save as version ${base.version + 1}?`}
      description="Requests without a version use it at once."
      onSubmit={() => save.run(base.version)}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={save.busy} blocked={draft === base.content && 'No changes'}>
            Save version
          </Button>
        </>
      }
    >
      <VariableChanges before={base.content} after={draft} />
      <DiffView before={base.content} after={draft} label="Your change" />
      <ErrorLine error={save.error} />
    </Dialog>
  )
}

interface ConflictProps {
  base: Prompt
  draft: string
  theirs: Prompt
  busy: boolean
  error: unknown
  onClose(): void
  onOverwrite(): void
  onTheirs: SaveDialogProps['onTheirs']
}

function Conflict({ base, draft, theirs, busy, error, onClose, onOverwrite, onTheirs }: ConflictProps) {
  const [view, setView] = useState<'theirs' | 'mine'>('theirs')
  const both = rebase(base.content, draft, theirs.content)
  return (
    <Dialog
      open
      size="lg"
      onClose={onClose}
      title={`Version ${theirs.version} was saved in the meantime`}
      description={`You started from version ${base.version}. Your changes are safe. Choose how to continue.`}
      actions={
        <>
          <Button onClick={() => onTheirs(theirs, null)}>Take theirs</Button>
          <Button busy={busy} onClick={onOverwrite}>
            Overwrite with mine
          </Button>
          <Button kind="primary" blocked={both === null && 'Both changed the same lines'} onClick={() => onTheirs(theirs, both)}>
            Merge my changes
          </Button>
        </>
      }
    >
      <Tabs
        label="Changes"
        value={view}
        onChange={(next) => setView(next)}
        items={[
          { value: 'theirs', label: 'Their change', content: <div className="pt-3"><DiffView before={base.content} after={theirs.content} label="Their change" /></div> },
          { value: 'mine', label: 'My change', content: <div className="pt-3"><DiffView before={base.content} after={draft} label="My change" /></div> },
        ]}
      />
      <ErrorLine error={error} />
    </Dialog>
  )
}

/** Added and removed variables, which callers of the prompt must handle. */
export function VariableChanges({ before, after }: { before: string; after: string }) {
  const was = variablesOf(before)
  const is = variablesOf(after)
  const added = is.filter((name) => !was.includes(name))
  const removed = was.filter((name) => !is.includes(name))
  if (added.length === 0 && removed.length === 0) return null
  return (
    <div className="flex flex-wrap items-center gap-1 text-xs text-muted">
      Variables:
      {added.map((name) => (
        <Badge key={name} tone="ok">
          + {name}
        </Badge>
      ))}
      {removed.map((name) => (
        <Badge key={name} tone="err">
          − {name}
        </Badge>
      ))}
    </div>
  )
}
