import { useNavigate } from '@tanstack/react-router'
import { Database, FlaskConical, Play } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useAction } from '@/lib/useAction'
import { Button, CopyButton, Field, FormDialog, Select, toast } from '@/ui'
import { asCurl, asPython, type LogDetail } from './copyAs'

/** Actions on a request: open in the playground, add to a dataset, evaluate, copy. */
export function Actions({ log }: { log: LogDetail }) {
  const navigate = useNavigate()
  const [open, setOpen] = useState<'dataset' | 'eval' | null>(null)
  const noBody = log.request_stored === 'off' && 'The body of this request was not kept'
  return (
    <div className="flex flex-wrap items-center gap-0.5 border-b border-line px-2 py-1.5">
      <CopyButton value={() => asCurl(log, location.origin)} label="Copy as curl (c)" text="curl" />
      <CopyButton value={() => asPython(log, location.origin)} label="Copy as Python" text="Python" />
      <CopyButton value={() => `${location.origin}/console/logs?log=${log.id}`} label="Copy a link to this request" text="Link" />
      <Button kind="ghost" size="sm" icon={<Play size={14} aria-hidden />} blocked={noBody} needs="member" title="Open in the playground (p)" onClick={() => void navigate({ to: '/playground', search: { log: log.id } })}>
        Playground
      </Button>
      <Button kind="ghost" size="sm" icon={<Database size={14} aria-hidden />} blocked={noBody} needs="member" title="Add to a dataset" onClick={() => setOpen('dataset')}>
        Dataset
      </Button>
      <Button kind="ghost" size="sm" icon={<FlaskConical size={14} aria-hidden />} needs="member" onClick={() => setOpen('eval')}>
        Evaluate
      </Button>
      {open === 'dataset' && <AddToDataset logId={log.id} onClose={() => setOpen(null)} />}
      {open === 'eval' && <RunEval logId={log.id} onClose={() => setOpen(null)} />}
    </div>
  )
}

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

function AddToDataset({ logId, onClose }: { logId: number; onClose(): void }) {
  const datasets = api.useQuery('get', '/api/v1/datasets', { params: { query: { limit: 200 } } })
  return (
    <Choice
      title="Add to a dataset"
      about="The request becomes the input of a test case, the answer what is expected."
      label="Dataset"
      options={datasets.data?.datasets.map((dataset: Schemas['Dataset']) => ({ value: dataset.id, label: dataset.name }))}
      none="There is no dataset yet: create one first"
      action="Add case"
      onClose={onClose}
      onChoose={async (datasetId) => {
        await client.POST('/api/v1/datasets/{datasetId}/from-logs', { params: { path: { datasetId } }, body: { log_ids: [logId] } })
        toast('Added as a test case')
      }}
    />
  )
}

function RunEval({ logId, onClose }: { logId: number; onClose(): void }) {
  const navigate = useNavigate()
  const evals = api.useQuery('get', '/api/v1/evals', { params: { query: { limit: 200 } } })
  return (
    <Choice
      title="Evaluate this request"
      about="Its stored answer is judged; the model is not called again unless the eval itself asks one."
      label="Eval"
      options={evals.data?.evals.map((one: Schemas['Eval']) => ({ value: String(one.id), label: `${one.name} (${one.evaluator})` }))}
      none="There is no eval yet: define one first"
      action="Run"
      onClose={onClose}
      onChoose={async (evalId) => {
        const run = await unwrap(client.POST('/api/v1/evals/{evalId}/run', { params: { path: { evalId: Number(evalId) } }, body: { log_ids: [logId] } }))
        await navigate({ to: '/evals/runs/$runId', params: { runId: String(run.id) } })
      }}
    />
  )
}
