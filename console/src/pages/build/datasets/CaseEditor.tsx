import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ConfirmDialog, ErrorLine, Field, Select, TextArea, toast, usePermissionReason } from '@/ui'
import { parseEditable, toEditable, type EditableValue } from './caseValue'

interface CaseEditorProps {
  datasetId: string
  /** Null for a new case. */
  value: Schemas['Case'] | null
  /** True for a frozen version. */
  frozen: boolean
  onSaved(id: string): void
  onDeleted(): void
}

/** Editor of one case; each field is text or JSON. */
export function CaseEditor({ datasetId, value, frozen, onSaved, onDeleted }: CaseEditorProps) {
  const [input, setInput] = useState<EditableValue>(() => toEditable(value?.input ?? ''))
  const [expected, setExpected] = useState<EditableValue>(() => toEditable(value?.expected ?? ''))
  const [metadata, setMetadata] = useState<EditableValue>(() => ({ kind: 'json', text: value?.metadata ? JSON.stringify(value.metadata, null, 2) : '' }))
  const [confirming, setConfirming] = useState(false)
  const permissionReason = usePermissionReason('member') ?? (frozen ? 'A version cannot be changed; go to the working copy' : null)
  const parts = { input: parseEditable(input), expected: parseEditable(expected), metadata: parseEditable(metadata) }
  const problem = Object.values(parts).find((part) => part.problem !== null)?.problem ?? (input.text.trim() === '' ? 'The input is empty' : null)
  const save = useAction(async () => {
    const body = { input: parts.input.value, expected: expected.text === '' ? null : parts.expected.value, metadata: metadata.text.trim() === '' ? {} : parts.metadata.value }
    if (value) {
      await client.PUT('/api/v1/datasets/{datasetId}/cases/{caseId}', { params: { path: { datasetId, caseId: value.id } }, body })
      await invalidate('/api/v1/datasets')
      toast('Case saved')
    } else {
      const created = await unwrap(client.POST('/api/v1/datasets/{datasetId}/cases', { params: { path: { datasetId } }, body }))
      await invalidate('/api/v1/datasets')
      const id = 'id' in created ? created.id : created.cases[0]?.id
      toast('Case added')
      if (id) onSaved(id)
    }
  })
  const remove = async () => {
    if (!value) return
    await client.DELETE('/api/v1/datasets/{datasetId}/cases/{caseId}', { params: { path: { datasetId, caseId: value.id } } })
    await invalidate('/api/v1/datasets')
    onDeleted()
  }
  return (
    <form
      className="flex flex-col gap-3 p-4"
      onSubmit={(event) => {
        event.preventDefault()
        if (!permissionReason && !problem) save.run()
      }}
    >
      <Part label="Input" rows={6} value={input} onChange={setInput} error={parts.input.problem ?? save.fields['input']} readOnly={permissionReason !== null} />
      <Part label="Expected" rows={4} value={expected} onChange={setExpected} error={parts.expected.problem ?? save.fields['expected']} readOnly={permissionReason !== null} hint="Leave empty if no particular answer is expected" />
      <Part label="Metadata" rows={3} value={metadata} onChange={setMetadata} error={parts.metadata.problem ?? save.fields['metadata']} readOnly={permissionReason !== null} onlyJson />
      {Object.keys(save.fields).length === 0 && <ErrorLine error={save.error} />}
      <div className="flex flex-wrap gap-2">
        <Button kind="primary" type="submit" busy={save.busy} blocked={permissionReason ?? problem ?? false}>
          {value ? 'Save case' : 'Add case'}
        </Button>
        {value && (
          <Button kind="danger" blocked={permissionReason ?? false} onClick={() => setConfirming(true)}>
            Delete case
          </Button>
        )}
      </div>
      {permissionReason && <p className="text-xs text-muted">{permissionReason}</p>}
      <ConfirmDialog open={confirming} onClose={() => setConfirming(false)} title="Delete this case?" action="Delete case" onConfirm={remove}>
        It is removed from the working copy. Frozen versions keep it.
      </ConfirmDialog>
    </form>
  )
}

interface PartProps {
  label: string
  rows: number
  value: EditableValue
  onChange(value: EditableValue): void
  error: string | null | undefined
  readOnly: boolean
  hint?: string
  onlyJson?: boolean
}

function Part({ label, rows, value, onChange, error, readOnly, hint, onlyJson }: PartProps) {
  return (
    <div className="relative">
      <Field label={label} error={error} hint={hint}>
        <TextArea mono={value.kind === 'json'} rows={rows} readOnly={readOnly} value={value.text} placeholder={onlyJson ? '{"topic": "geography"}' : undefined} onChange={(event) => onChange({ ...value, text: event.target.value })} />
      </Field>
      {!onlyJson && (
        <Select aria-label={`${label} is`} className="!absolute top-[-5px] right-0 !min-h-6 !w-20 !py-0 text-xs" disabled={readOnly} value={value.kind} onChange={(event) => onChange({ ...value, kind: event.target.value === 'json' ? 'json' : 'text' })} options={[{ value: 'text', label: 'Text' }, { value: 'json', label: 'JSON' }]} />
      )}
    </div>
  )
}
