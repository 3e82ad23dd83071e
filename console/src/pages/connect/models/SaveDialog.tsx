import { client, unwrap } from '@/api/client'
import { ApiError } from '@/api/error'
import { useMe } from '@/api/me'
import { useAction } from '@/lib/useAction'
import { Button, Dialog, ErrorLine } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import { definitionText, type Definition, type Model } from './draft'

interface SaveDialogProps {
  /** The latest version, which is replaced. */
  latest: Model
  definition: Definition
  onClose(): void
  onSaved(model: Model): void
  /** The gateway refuses the definition. */
  onRefused(error: ApiError): void
}

/** The diff of a model before it is saved. */
export function SaveDialog({ latest, definition, onClose, onSaved, onRefused }: SaveDialogProps) {
  const { orgId } = useMe()
  const save = useAction(async () => {
    try {
      onSaved(await unwrap(client.PUT('/api/v1/orgs/{orgId}/models/{model}', { params: { path: { orgId, model: latest.id } }, body: definition })))
    } catch (failure) {
      if (!(failure instanceof ApiError) || ![400, 422].includes(failure.status)) throw failure
      onRefused(failure)
    }
  })
  return (
    <Dialog
      open
      size="lg"
      onClose={onClose}
      title={`Save ${latest.name} as version ${latest.version + 1}?`}
      description="Takes effect with the next request; on other nodes within a second."
      onSubmit={save.run}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={save.busy}>
            Save version
          </Button>
        </>
      }
    >
      <DiffView before={definitionText(latest)} after={JSON.stringify(definition, null, 2)} label="Your change" />
      <ErrorLine error={save.error} />
    </Dialog>
  )
}
