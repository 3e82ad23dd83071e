import { useState } from 'react'
import { client, take, type Schemas } from '@/api/client'
import type { ApiError } from '@/api/error'
import { rebase } from '@/lib/rebase'
import { variablesOf } from '@/lib/template'
import { useAction } from '@/lib/useAction'
import { Badge, Button, Dialog, ErrorLine, Tabs } from '@/ui'
import { DiffView } from '@/ui/DiffView'

type Prompt = Schemas['Prompt']

interface SaveDialogProps {
  /** The version that the change was made from. */
  base: Prompt
  draft: string
  onClose(): void
  onSaved(saved: Prompt): void
  /** Somebody else was faster: what they saved is taken, or the draft goes on from it. */
  onTheirs(theirs: Prompt, draft: string | null): void
}

/** Shows what is about to be saved. When another version was saved meanwhile, it asks how to go on. */
export function SaveDialog({ base, draft, onClose, onSaved, onTheirs }: SaveDialogProps) {
  const [theirs, setTheirs] = useState<Prompt | null>(null)
  const path = { namespace: base.namespace, slug: base.slug }
  const save = useAction(async (expected: number) => {
    try {
      onSaved(await take(client.PUT('/api/v1/prompts/{namespace}/{slug}', { params: { path }, body: { content: draft, expected_version: expected } })))
    } catch (failure) {
      if ((failure as ApiError).status !== 409) throw failure
      setTheirs(await take(client.GET('/api/v1/prompts/{namespace}/{slug}', { params: { path } })))
    }
  })
  if (theirs) return <Conflict base={base} draft={draft} theirs={theirs} busy={save.busy} error={save.error} onClose={onClose} onOverwrite={() => save.run(theirs.version)} onTheirs={onTheirs} />
  return (
    <Dialog
      open
      size="lg"
      onClose={onClose}
      title={`Save as version ${base.version + 1}?`}
      description="Requests that name no version get it at once."
      onSubmit={() => save.run(base.version)}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={save.busy} blocked={draft === base.content && 'Nothing was changed'}>
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
      title={`Version ${theirs.version} was saved meanwhile`}
      description={`You began with version ${base.version}. Nothing of yours is lost: choose how to go on.`}
      actions={
        <>
          <Button onClick={() => onTheirs(theirs, null)}>Take theirs</Button>
          <Button busy={busy} onClick={onOverwrite}>
            Save mine over it
          </Button>
          <Button kind="primary" blocked={both === null && 'Both changed the same lines'} onClick={() => onTheirs(theirs, both)}>
            Put mine on top of theirs
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

/** The variables that came and went, since whoever calls the prompt must know. */
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
