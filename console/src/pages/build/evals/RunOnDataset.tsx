import { useNavigate } from '@tanstack/react-router'
import { Plus, X } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { ApiError, asApiError } from '@/api/error'
import { invalidate } from '@/api/query'
import { plural } from '@/lib/format'
import type { RunTarget } from '@/lib/runs'
import { useAction } from '@/lib/useAction'
import { Button, Field, FormDialog, Input, Radio, Select } from '@/ui'
import { EvalChoice } from '../shared/EvalChoice'
import { ModelPicker } from '../shared/ModelPicker'
import { PromptPicker } from '../shared/PromptPicker'
import { RunEstimate } from './RunEstimate'

const MAX_EVALS = 10
const MAX_TARGETS = 10

interface RunOnDatasetProps {
  /** Preselected eval and dataset; missing ones are selected in the form. */
  evalId?: number
  datasetId?: string
  version?: number | undefined
  /** What is evaluated, if it is already known. */
  initial?: readonly RunTarget[]
  /** What is tried elsewhere, but not in a run. */
  note?: string | null
  /** Id of the run that a single new one is compared with. */
  compareWith?: number
  onClose(): void
}

const DEFAULT_TARGET: RunTarget = { provider: 'sandbox', model: 'sandbox-small', prompt: null, params: {}, variables: {} }

/** Starts runs over a dataset: one for each eval and model, or one for each eval on the stored outputs. */
export function RunOnDataset({ evalId, datasetId, version, initial, note, compareWith, onClose }: RunOnDatasetProps) {
  const navigate = useNavigate()
  const evals = api.useQuery('get', '/api/v1/evals', { params: { query: { limit: 200 } } })
  const datasets = api.useQuery('get', '/api/v1/datasets', { params: { query: { limit: 200 } } })
  const [chosenEvals, setChosenEvals] = useState<number[] | null>(evalId === undefined ? null : [evalId])
  const [chosenDataset, setChosenDataset] = useState('')
  const [chosenVersion, setChosenVersion] = useState(version)
  const [withModel, setWithModel] = useState(true)
  const [targets, setTargets] = useState<RunTarget[]>(() => initial?.slice(0, MAX_TARGETS) ?? [DEFAULT_TARGET])
  const [answerTokens, setAnswerTokens] = useState('500')
  // The first eval is chosen until the user decides.
  const evalIds = chosenEvals ?? evals.data?.evals.slice(0, 1).map((one) => one.id) ?? []
  const dataset = datasets.data?.datasets.find((one) => one.id === (datasetId ?? chosenDataset)) ?? (datasetId === undefined ? datasets.data?.datasets[0] : undefined)
  const requests: Schemas['EvalTarget'][] = withModel ? targets.map(({ provider, model, prompt, params, variables }) => ({ provider, model: model.trim(), prompt: prompt && { ...prompt, variables }, params })) : []
  const runs = evalIds.length * Math.max(1, requests.length)

  const run = useAction(async () => {
    if (!dataset) return
    const started: number[] = []
    // One after the other, so that the runs are listed in this order and a refusal stops the rest.
    for (const target of requests.length > 0 ? requests : [null]) {
      for (const id of evalIds) {
        try {
          const created = await unwrap(client.POST('/api/v1/datasets/{datasetId}/eval', { params: { path: { datasetId: dataset.id } }, body: { eval_id: id, version: chosenVersion, target } }))
          started.push(created.id)
        } catch (failure) {
          if (started.length === 0) throw failure
          const { code, message, status } = asApiError(failure)
          throw new ApiError(status, { code, message: `${plural(started.length, 'run was', 'runs were')} started, then: ${message}` })
        }
      }
    }
    await invalidate('/api/v1/evals/runs')
    if (started.length === 1) await navigate({ to: '/evals/runs/$runId', params: { runId: String(started[0]) }, search: { with: compareWith } })
    else await navigate({ to: '/evals/experiment', search: { runs: started.join(',') } })
    onClose()
  })
  const change = (at: number, target: Partial<RunTarget>) => setTargets(targets.map((one, index) => (index === at ? { ...one, ...target } : one)))
  const missing = evals.data?.evals.length === 0 ? 'There is no eval yet: define one first' : datasets.data?.datasets.length === 0 ? 'There is no dataset yet: create one first' : null
  const blocked = missing ?? (evalIds.length === 0 ? 'Choose an eval' : requests.some((one) => one.model === '') ? 'Choose a model' : false)
  return (
    <FormDialog size="lg" onClose={onClose} title="Run evals on a dataset" action={run} submit={runs > 1 ? `Start ${runs} runs` : 'Start run'} blocked={blocked}>
      {missing && <p className="text-muted">{missing}.</p>}
      {note && <p className="card bg-warn-soft px-3 py-2">{note}</p>}
      <EvalChoice chosen={evalIds} onChange={setChosenEvals} max={MAX_EVALS} none="There is no eval yet." about="Each eval is a separate run." />
      <div className="grid gap-3 sm:grid-cols-2">
        {datasetId === undefined && (
          <Field label="Dataset">
            <Select value={dataset?.id ?? ''} onChange={(event) => { setChosenDataset(event.target.value); setChosenVersion(undefined) }} options={datasets.data?.datasets.map((one) => ({ value: one.id, label: `${one.name}, ${plural(one.case_count, 'case')}` })) ?? []} />
          </Field>
        )}
        <Field label="Version" hint="Runs on the same version can be compared case by case">
          <Select value={String(chosenVersion ?? '')} onChange={(event) => setChosenVersion(event.target.value === '' ? undefined : Number(event.target.value))} options={[{ value: '', label: 'Working copy, as it is now' }, ...Array.from({ length: dataset?.current_version ?? 0 }, (_, at) => ({ value: String((dataset?.current_version ?? 0) - at), label: `Version ${(dataset?.current_version ?? 0) - at}` }))]} />
        </Field>
      </div>
      <fieldset className="flex flex-col gap-2">
        <legend className="mb-1 text-sm font-medium">What is judged</legend>
        <Radio name="judged" label="New answers of models" hint="Each input is sent to the models first, and their answers are evaluated." checked={withModel} onChange={() => setWithModel(true)} />
        <Radio name="judged" label="Outputs stored in the dataset" hint="metadata.output of each case, or its expected value." checked={!withModel} onChange={() => setWithModel(false)} />
      </fieldset>
      {withModel && (
        <>
          <ol className="flex flex-col gap-2" aria-label="Models">
            {targets.map((target, at) => (
              <li key={at} className="card flex items-start gap-2 bg-sunken p-2">
                <div className="flex min-w-0 flex-1 flex-col gap-2">
                  <div className="grid gap-2 md:grid-cols-2">
                    <ModelPicker provider={target.provider} model={target.model} onChange={(provider, model) => change(at, { provider, model })} />
                    <PromptPicker value={target.prompt} onChange={(prompt) => change(at, { prompt })} none="None: only the input is sent" />
                  </div>
                  <Carried number={at + 1} target={target} onChange={(part) => change(at, part)} />
                </div>
                <Button size="sm" kind="ghost" square aria-label={`Remove model ${at + 1}`} blocked={targets.length === 1 && 'At least one model is needed'} icon={<X size={14} aria-hidden />} onClick={() => setTargets(targets.toSpliced(at, 1))} />
              </li>
            ))}
          </ol>
          <div className="flex flex-wrap items-end justify-between gap-3">
            <Button size="sm" icon={<Plus size={14} aria-hidden />} blocked={targets.length >= MAX_TARGETS && `At most ${MAX_TARGETS} models`} onClick={() => setTargets([...targets, targets.at(-1) ?? DEFAULT_TARGET])}>
              Add model
            </Button>
            <Field label="Tokens per answer (assumed)" className="w-52">
              <Input type="number" min={1} max={1_000_000} value={answerTokens} onChange={(event) => setAnswerTokens(event.target.value)} />
            </Field>
          </div>
          <p className="text-xs text-muted">A prompt is the system message before each input, as in production. Its variables are filled from the fields of the input; {'{{input}}'} is all of it. A prompt that uses the whole input is the user message.</p>
        </>
      )}
      {dataset && blocked === false && <RunEstimate datasetId={dataset.id} request={{ eval_ids: evalIds, version: chosenVersion ?? null, targets: requests, output_tokens: Math.max(1, Math.trunc(Number(answerTokens)) || 1) }} />}
    </FormDialog>
  )
}

/** Parameters and values of variables that come with a target, and can be left out. */
function Carried({ number, target, onChange }: { number: number; target: RunTarget; onChange(part: Partial<RunTarget>): void }) {
  const params = Object.entries(target.params).map(([name, value]) => `${name} ${JSON.stringify(value)}`)
  const values = target.prompt ? Object.entries(target.variables).sort(([one], [other]) => one.localeCompare(other)) : []
  return (
    <>
      {params.length > 0 && (
        <CarriedLine label="Parameters" remove={`Use default parameters for model ${number}`} onRemove={() => onChange({ params: {} })}>
          {params.join(', ')}
        </CarriedLine>
      )}
      {values.length > 0 && (
        <CarriedLine label="Values for inputs without the field" remove={`Remove the values of variables of model ${number}`} onRemove={() => onChange({ variables: {} })}>
          {values.map(([name, value]) => `${name} = ${value}`).join(', ')}
        </CarriedLine>
      )}
    </>
  )
}

function CarriedLine({ label, remove, onRemove, children }: { label: string; remove: string; onRemove(): void; children: string }) {
  return (
    <p className="flex items-center gap-2 text-xs">
      <span className="line-clamp-3 min-w-0 flex-1 break-words" title={children}>
        <span className="text-muted">{label}</span> <span className="font-mono">{children}</span>
      </span>
      <Button size="sm" kind="ghost" square aria-label={remove} title={remove} icon={<X size={14} aria-hidden />} onClick={onRemove} />
    </p>
  )
}
