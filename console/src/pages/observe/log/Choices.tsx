import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Select, toast, toastWarning } from '@/ui'
import { isOne, leftOutText, rowsText, selectionOf, type ChosenRows } from './chosenRows'

interface ChoiceProps {
  title: string
  about: string
  label: string
  options: { value: string; label: string }[] | undefined
  none: string
  action: string
  onClose(): void
  onChoose(value: string): Promise<void>
}

function Choice({ title, about, label, options, none, action, onClose, onChoose }: ChoiceProps) {
  const [chosen, setChosen] = useState('')
  const value = chosen || (options?.[0]?.value ?? '')
  const run = useAction(async () => {
    await onChoose(value)
    onClose()
  })
  return (
    <FormDialog
      onClose={onClose}
      size="sm"
      title={title}
      description={about}
      action={run}
      submit={action}
      blocked={options?.length === 0 && none}
    >
      {options?.length === 0 ? <p className="text-muted">{none}</p> : (
        <Field label={label}>
          <Select value={value} onChange={(event) => setChosen(event.target.value)} options={options ?? []} />
        </Field>
      )}
    </FormDialog>
  )
}

/** Adds requests to a dataset as test cases. */
export function AddToDataset({ rows, onClose }: { rows: ChosenRows; onClose(): void }) {
  const datasets = api.useQuery('get', '/api/v1/datasets', { params: { query: { limit: 200 } } })
  return (
    <Choice
      title={isOne(rows) ? 'Add to a dataset' : `Add ${rowsText(rows)} to a dataset`}
      about={`Each request becomes the input of a test case; its response is kept as metadata.output. The expected output stays empty.${'ids' in rows ? '' : ' Requests that cannot be test cases are skipped.'}`}
      label="Dataset"
      options={datasets.data?.datasets.map((dataset: Schemas['Dataset']) => ({ value: dataset.id, label: dataset.name }))}
      none="There is no dataset yet: create one first"
      action={isOne(rows) ? 'Add case' : 'ids' in rows ? `Add ${rows.ids.length} cases` : 'Add cases'}
      onClose={onClose}
      onChoose={async (datasetId) => {
        const made = await unwrap(client.POST('/api/v1/datasets/{datasetId}/from-logs', { params: { path: { datasetId } }, body: selectionOf(rows) }))
        const added = isOne(rows) ? 'Added as a test case' : `Added ${plural(made.cases.length, 'test case')}`
        const leftOut = leftOutText(made, 'test cases')
        if (leftOut) toastWarning(`${added}. ${leftOut}`)
        else toast(added)
      }}
    />
  )
}

/** Runs an eval on the stored responses of requests. */
export function RunEval({ rows, onClose }: { rows: ChosenRows; onClose(): void }) {
  const navigate = useNavigate()
  const evals = api.useQuery('get', '/api/v1/evals', { params: { query: { limit: 200 } } })
  return (
    <Choice
      title={isOne(rows) ? 'Evaluate this request' : `Evaluate ${rowsText(rows)}`}
      about="The stored response is evaluated; the model is not called again, unless the eval itself uses one."
      label="Eval"
      options={evals.data?.evals.map((one: Schemas['Eval']) => ({ value: String(one.id), label: `${one.name} (${one.evaluator})` }))}
      none="There is no eval yet: define one first"
      action="Run"
      onClose={onClose}
      onChoose={async (evalId) => {
        const run = await unwrap(client.POST('/api/v1/evals/{evalId}/run', { params: { path: { evalId: Number(evalId) } }, body: selectionOf(rows) }))
        const leftOut = leftOutText(run, 'evaluated')
        if (leftOut) toastWarning(leftOut)
        await navigate({ to: '/evals/runs/$runId', params: { runId: String(run.id) } })
      }}
    />
  )
}
