import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, client, unwrap } from '@/api/client'
import { invalidate } from '@/api/query'
import { plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Radio, Select } from '@/ui'
import { usePrompts } from '../prompts/usePrompts'
import { ModelPicker } from '../shared/ModelPicker'

interface RunOnDatasetProps {
  /** Preselected eval and dataset; missing ones are selected in the form. */
  evalId?: number
  datasetId?: string
  version?: number | undefined
  /** What is evaluated, if it is already known. */
  initial?: { provider: string; model: string; prompt?: { namespace: string; slug: string; version: number | null } | null }
  /** Id of the run that the new one is compared with. */
  compareWith?: number
  onClose(): void
}

/** Starts a run over a dataset, on its stored outputs or on fresh model output. */
export function RunOnDataset({ evalId, datasetId, version, initial, compareWith, onClose }: RunOnDatasetProps) {
  const navigate = useNavigate()
  const evals = api.useQuery('get', '/api/v1/evals', { params: { query: { limit: 200 } } }, { enabled: evalId === undefined })
  const datasets = api.useQuery('get', '/api/v1/datasets', { params: { query: { limit: 200 } } })
  const { prompts } = usePrompts()
  const [chosenEval, setChosenEval] = useState('')
  const [chosenDataset, setChosenDataset] = useState('')
  const [chosenVersion, setChosenVersion] = useState(version)
  const [withModel, setWithModel] = useState(true)
  const [target, setTarget] = useState({ provider: initial?.provider ?? 'sandbox', model: initial?.model ?? 'sandbox-small' })
  const [prompt, setPrompt] = useState(initial?.prompt ? `${initial.prompt.namespace}/${initial.prompt.slug}` : '')
  const [promptVersion, setPromptVersion] = useState(initial?.prompt?.version ?? null)
  const latestVersion = prompts.find((one) => `${one.namespace}/${one.slug}` === prompt)?.version ?? 0
  const selectedEval = evalId ?? (Number(chosenEval) || evals.data?.evals[0]?.id)
  const selectedDataset = datasets.data?.datasets.find((one) => one.id === (datasetId ?? chosenDataset)) ?? (datasetId === undefined ? datasets.data?.datasets[0] : undefined)
  const run = useAction(async () => {
    if (selectedEval === undefined || !selectedDataset) return
    const [namespace = '', slug = ''] = prompt.split('/')
    const body = { eval_id: selectedEval, version: chosenVersion, target: withModel ? { ...target, prompt: prompt === '' ? null : { namespace, slug, version: promptVersion } } : null }
    const created = await unwrap(client.POST('/api/v1/datasets/{datasetId}/eval', { params: { path: { datasetId: selectedDataset.id } }, body }))
    await invalidate('/api/v1/evals/runs')
    await navigate({ to: '/evals/runs/$runId', params: { runId: String(created.id) }, search: { with: compareWith } })
    onClose()
  })
  const blocked = evals.data?.evals.length === 0 ? 'There is no eval yet: define one first' : datasets.data?.datasets.length === 0 ? 'There is no dataset yet: create one first' : false
  return (
    <FormDialog
      onClose={onClose}
      title="Run eval on a dataset"
      action={run}
      submit="Start run"
      blocked={blocked}
    >
      {blocked && <p className="text-muted">{blocked}.</p>}
      {evalId === undefined && (
        <Field label="Eval">
          <Select value={String(selectedEval ?? '')} onChange={(event) => setChosenEval(event.target.value)} options={evals.data?.evals.map((one) => ({ value: String(one.id), label: `${one.name} (${one.evaluator})` })) ?? []} />
        </Field>
      )}
      {datasetId === undefined && (
        <Field label="Dataset">
          <Select value={selectedDataset?.id ?? ''} onChange={(event) => { setChosenDataset(event.target.value); setChosenVersion(undefined) }} options={datasets.data?.datasets.map((one) => ({ value: one.id, label: `${one.name}, ${one.case_count} cases` })) ?? []} />
        </Field>
      )}
      <Field label="Version" hint="Runs on the same version can be compared case by case">
        <Select value={String(chosenVersion ?? '')} onChange={(event) => setChosenVersion(event.target.value === '' ? undefined : Number(event.target.value))} options={[{ value: '', label: 'Working copy, as it is now' }, ...Array.from({ length: selectedDataset?.current_version ?? 0 }, (_, at) => ({ value: String((selectedDataset?.current_version ?? 0) - at), label: `Version ${(selectedDataset?.current_version ?? 0) - at}` }))]} />
      </Field>
      <fieldset className="flex flex-col gap-2">
        <legend className="mb-1 text-sm font-medium">What is judged</legend>
        <Radio name="judged" label="New answers of a model" hint="Each input is sent to the model first." checked={withModel} onChange={() => setWithModel(true)} />
        <Radio name="judged" label="Outputs stored in the dataset" hint="metadata.output of each case, or its expected value." checked={!withModel} onChange={() => setWithModel(false)} />
      </fieldset>
      {withModel && (
        <>
          <ModelPicker provider={target.provider} model={target.model} onChange={(provider, model) => setTarget({ provider, model })} />
          <Field label="Prompt" hint="Its variables are filled from the fields of each input; {{input}} is all of it">
            <Select value={prompt} onChange={(event) => { setPrompt(event.target.value); setPromptVersion(null) }} options={[{ value: '', label: 'None: the input is sent as the user message' }, ...prompts.map((one) => `${one.namespace}/${one.slug}`)]} />
          </Field>
          {prompt !== '' && (
            <Field label="Version of the prompt">
              <Select value={String(promptVersion ?? '')} onChange={(event) => setPromptVersion(event.target.value === '' ? null : Number(event.target.value))} options={[{ value: '', label: 'Latest' }, ...Array.from({ length: latestVersion }, (_, at) => ({ value: String(latestVersion - at), label: `v${latestVersion - at}` }))]} />
            </Field>
          )}
          {selectedDataset && <p className="text-xs text-muted">{plural(selectedDataset.case_count, 'call')} to the model{selectedDataset.case_count > 0 && ', each priced like every other request'}.</p>}
        </>
      )}
    </FormDialog>
  )
}
