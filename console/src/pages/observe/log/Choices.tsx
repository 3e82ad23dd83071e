import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Select, toast } from '@/ui'

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
export function AddToDataset({ logIds, onClose }: { logIds: number[]; onClose(): void }) {
  const datasets = api.useQuery('get', '/api/v1/datasets', { params: { query: { limit: 200 } } })
  return (
    <Choice
      title="Add to a dataset"
      about="Each request becomes the input of a test case; its response is kept as metadata.output. The expected output stays empty."
      label="Dataset"
      options={datasets.data?.datasets.map((dataset: Schemas['Dataset']) => ({ value: dataset.id, label: dataset.name }))}
      none="There is no dataset yet: create one first"
      action={logIds.length === 1 ? 'Add case' : `Add ${logIds.length} cases`}
      onClose={onClose}
      onChoose={async (datasetId) => {
        await client.POST('/api/v1/datasets/{datasetId}/from-logs', { params: { path: { datasetId } }, body: { log_ids: logIds } })
        toast(logIds.length === 1 ? 'Added as a test case' : `Added ${plural(logIds.length, 'test case')}`)
      }}
    />
  )
}

/** Runs an eval on the stored responses of requests. */
export function RunEval({ logIds, onClose }: { logIds: number[]; onClose(): void }) {
  const navigate = useNavigate()
  const evals = api.useQuery('get', '/api/v1/evals', { params: { query: { limit: 200 } } })
  return (
    <Choice
      title={logIds.length === 1 ? 'Evaluate this request' : `Evaluate ${plural(logIds.length, 'request')}`}
      about="The stored response is evaluated; the model is not called again, unless the eval itself uses one."
      label="Eval"
      options={evals.data?.evals.map((one: Schemas['Eval']) => ({ value: String(one.id), label: `${one.name} (${one.evaluator})` }))}
      none="There is no eval yet: define one first"
      action="Run"
      onClose={onClose}
      onChoose={async (evalId) => {
        const run = await unwrap(client.POST('/api/v1/evals/{evalId}/run', { params: { path: { evalId: Number(evalId) } }, body: { log_ids: logIds } }))
        await navigate({ to: '/evals/runs/$runId', params: { runId: String(run.id) } })
      }}
    />
  )
}
