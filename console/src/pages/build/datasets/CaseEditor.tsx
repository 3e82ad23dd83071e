import { useState } from 'react'
import { client, take, type Schemas } from '@/api/client'
import { refresh } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ConfirmDialog, ErrorLine, Field, Select, TextArea, toast, useReason } from '@/ui'
import { readValue, writeValue, type Written } from './value'

interface CaseEditorProps {
  datasetId: string
  /** Null for a new one. */
  value: Schemas['Case'] | null
  /** Of a version, which cannot be changed. */
  frozen: boolean
  onSaved(id: string): void
  onDeleted(): void
}

/** One case: each part as a text or as JSON. */
export function CaseEditor({ datasetId, value, frozen, onSaved, onDeleted }: CaseEditorProps) {
  const [input, setInput] = useState<Written>(() => writeValue(value?.input ?? ''))
  const [expected, setExpected] = useState<Written>(() => writeValue(value?.expected ?? ''))
  const [metadata, setMetadata] = useState<Written>(() => ({ kind: 'json', text: value?.metadata ? JSON.stringify(value.metadata, null, 2) : '' }))
  const [asking, setAsking] = useState(false)
  const mayNot = useReason('member') ?? (frozen ? 'A version cannot be changed; go to the working copy' : null)
  const parts = { input: readValue(input), expected: readValue(expected), metadata: readValue(metadata) }
  const problem = Object.values(parts).find((part) => part.problem !== null)?.problem ?? (input.text.trim() === '' ? 'The input is empty' : null)
  const save = useAction(async () => {
    const body = { input: parts.input.value, expected: expected.text === '' ? null : parts.expected.value, metadata: metadata.text.trim() === '' ? {} : parts.metadata.value }
    if (value) {
      await client.PUT('/api/v1/datasets/{datasetId}/cases/{caseId}', { params: { path: { datasetId, caseId: value.id } }, body })
      await refresh('/api/v1/datasets')
      toast('Case saved')
    } else {
      const made = await take(client.POST('/api/v1/datasets/{datasetId}/cases', { params: { path: { datasetId } }, body }))
      await refresh('/api/v1/datasets')
      const id = 'id' in made ? made.id : made.cases[0]?.id
      toast('Case added')
      if (id) onSaved(id)
    }
  })
  const remove = async () => {
    if (!value) return
    await client.DELETE('/api/v1/datasets/{datasetId}/cases/{caseId}', { params: { path: { datasetId, caseId: value.id } } })
    await refresh('/api/v1/datasets')
    onDeleted()
  }
  return (
    <form
      className="flex flex-col gap-3 p-4"
      onSubmit={(event) => {
        event.preventDefault()
        if (!mayNot && !problem) save.run()
      }}
    >
      <Part label="Input" rows={6} value={input} onChange={setInput} error={parts.input.problem ?? save.fields['input']} readOnly={mayNot !== null} />
      <Part label="Expected" rows={4} value={expected} onChange={setExpected} error={parts.expected.problem ?? save.fields['expected']} readOnly={mayNot !== null} hint="Leave it empty when nothing certain is expected" />
      <Part label="Metadata" rows={3} value={metadata} onChange={setMetadata} error={parts.metadata.problem ?? save.fields['metadata']} readOnly={mayNot !== null} onlyJson />
      {Object.keys(save.fields).length === 0 && <ErrorLine error={save.error} />}
      <div className="flex flex-wrap gap-2">
        <Button kind="primary" type="submit" busy={save.busy} blocked={mayNot ?? problem ?? false}>
          {value ? 'Save case' : 'Add case'}
        </Button>
        {value && (
          <Button kind="danger" blocked={mayNot ?? false} onClick={() => setAsking(true)}>
            Delete case
          </Button>
        )}
      </div>
      {mayNot && <p className="text-xs text-muted">{mayNot}</p>}
      <ConfirmDialog open={asking} onClose={() => setAsking(false)} title="Delete this case?" action="Delete case" onConfirm={remove}>
        It leaves the working copy. Versions that were frozen keep it.
      </ConfirmDialog>
    </form>
  )
}

interface PartProps {
  label: string
  rows: number
  value: Written
  onChange(value: Written): void
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
