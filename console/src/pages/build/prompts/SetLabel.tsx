import { useId, useState } from 'react'
import { client, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { labelProblem } from '@/lib/promptVersions'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, toast } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import { VariableChanges } from './SaveDialog'

const USUAL_LABELS = ['production', 'staging']

interface SetLabelProps {
  shown: Schemas['Prompt']
  known: readonly Schemas['Prompt'][] | undefined
  labels: readonly Schemas['PromptLabel'][]
  /** The label to move, or empty to type one. */
  initial: string
  onClose(): void
}

/** Sets or moves a label to the displayed version, after showing what changes for its callers. */
export function SetLabel({ shown, known, labels, initial, onClose }: SetLabelProps) {
  const list = useId()
  const [typed, setTyped] = useState(initial || (labels.length === 0 ? 'production' : ''))
  const label = typed.trim()
  const current = labels.find((one) => one.label === label)
  const before = known?.find((one) => one.version === current?.version)
  const problem = label === '' ? 'Type a label' : labelProblem(label)
  const move = useAction(async () => {
    await client.PUT('/api/v1/prompts/{namespace}/{slug}/labels/{label}', { params: { path: { namespace: shown.namespace, slug: shown.slug, label } }, body: { version: shown.version, ...(current && { expected_version: current.version }) } })
    await invalidate('/api/v1/prompts')
    onClose()
    toast(`${label} is v${shown.version}`)
  })
  const name = `${shown.namespace}/${shown.slug}@${label || '…'}`
  return (
    <FormDialog
      size={before ? 'lg' : 'md'}
      onClose={onClose}
      title={current ? `Move ${label} to v${shown.version}?` : `Label v${shown.version}`}
      action={move}
      submit={current ? `Promote v${shown.version} to ${label}` : 'Set label'}
      blocked={problem ?? (current?.version === shown.version && 'It already points to this version')}
      fields={['label']}
    >
      {initial === '' && (
        <Field label="Label" error={move.fields['label'] ?? (label === '' ? undefined : problem)}>
          <Input mono autoFocus list={list} value={typed} maxLength={64} onChange={(event) => setTyped(event.target.value)} />
        </Field>
      )}
      <datalist id={list}>
        {[...new Set([...labels.map((one) => one.label), ...USUAL_LABELS])].map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
      <p>
        {current ? (
          <>
            Requests that name <code>{name}</code> use v{shown.version} instead of v{current.version} from the next request on.
          </>
        ) : (
          <>
            Requests can name <code>{name}</code> and get v{shown.version}.
          </>
        )}
      </p>
      {before && current && before.version !== shown.version && (
        <>
          <VariableChanges before={before.content} after={shown.content} />
          <DiffView before={before.content} after={shown.content} label={`Changes from v${before.version} to v${shown.version}`} />
        </>
      )}
    </FormDialog>
  )
}
