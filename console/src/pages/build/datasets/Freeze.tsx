import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, toast } from '@/ui'

/** Freezes the working copy as an immutable version. */
export function Freeze({ dataset, onClose }: { dataset: Schemas['Dataset']; onClose(): void }) {
  const [note, setNote] = useState('')
  const freeze = useAction(async () => {
    const created = await unwrap(client.POST('/api/v1/datasets/{datasetId}/versions', { params: { path: { datasetId: dataset.id } }, body: { note: note.trim() || null } }))
    await invalidate('/api/v1/datasets')
    toast(`Version ${created.version} has ${plural(created.case_count, 'case')}`)
    onClose()
  })
  return (
    <FormDialog
      size="sm"
      onClose={onClose}
      title={`Freeze as version ${dataset.current_version + 1}`}
      description={`${plural(dataset.case_count, 'case')} as they are now. A version never changes, so runs on it can be compared.`}
      action={freeze}
      submit="Freeze version"
      fields={['note']}
    >
      <Field label="Note" error={freeze.fields['note']}>
        <Input autoFocus value={note} placeholder="Before the rewrite" onChange={(event) => setNote(event.target.value)} />
      </Field>
    </FormDialog>
  )
}
