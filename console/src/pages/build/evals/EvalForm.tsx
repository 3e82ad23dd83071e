import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { compact, percent } from '@/lib/format'
import { fieldsOf, parseFormValues, toFormValues, type FormValues } from '@/lib/schemaForm'
import { useAction } from '@/lib/useAction'
import { Dialog, ErrorPanel, Field, FormDialog, Input, SkeletonRows, Switch } from '@/ui'
import { EvaluatorCards } from './EvaluatorCards'
import { SchemaFields } from './SchemaFields'
import { TryIt } from './TryIt'

type Eval = Schemas['Eval']

/** Share of new requests that are judged once that is switched on. */
const DEFAULT_RATE = 0.1

interface EvalFormProps {
  /** Omitted for a new eval. */
  value?: Eval
  /** Opens with the judging of new requests switched on. */
  judging?: boolean
  onClose(): void
  onSaved(saved: Eval): void
}

/** Eval definition form: evaluator, config and sampling rate, with a trial run before saving. */
export function EvalForm(props: EvalFormProps) {
  const evaluators = api.useQuery('get', '/api/v1/evals/evaluators', {}, { staleTime: Number.POSITIVE_INFINITY })
  if (evaluators.data) return <Form {...props} evaluators={evaluators.data.evaluators} />
  return (
    <Dialog open onClose={props.onClose} title={props.value ? 'Change eval' : 'New eval'}>
      {evaluators.isError ? <ErrorPanel error={evaluators.error} what="the evaluators" onRetry={() => void evaluators.refetch()} /> : <SkeletonRows rows={4} />}
    </Dialog>
  )
}

function Form({ value, judging = false, evaluators, onClose, onSaved }: EvalFormProps & { evaluators: readonly Schemas['Evaluator'][] }) {
  const [name, setName] = useState(value?.name ?? '')
  const [chosen, setChosen] = useState(value?.evaluator ?? 'contains')
  const evaluator = evaluators.find((one) => one.evaluator === chosen) ?? evaluators[0]
  const fields = fieldsOf(evaluator?.config)
  const [typed, setTyped] = useState<FormValues>(() => toFormValues(fields, value?.config))
  const [enabled, setEnabled] = useState(judging || (value !== undefined && value.enabled && value.sample_rate > 0))
  const [rate, setRate] = useState(value?.sample_rate || DEFAULT_RATE)
  const [touched, setTouched] = useState(false)
  const { value: config, problems } = parseFormValues(fields, typed)
  const isValid = Object.keys(problems).length === 0
  const body = { name, type: evaluator?.type ?? 'static', evaluator: evaluator?.evaluator ?? '', config, enabled, sample_rate: enabled ? rate : (value?.sample_rate ?? 0) }
  const save = useAction(async () => {
    setTouched(true)
    if (!isValid) return
    const saved = await unwrap(value ? client.PUT('/api/v1/evals/{evalId}', { params: { path: { evalId: value.id } }, body }) : client.POST('/api/v1/evals', { body }))
    await invalidate('/api/v1/evals')
    onClose()
    onSaved(saved)
  })
  const refused = Object.fromEntries(Object.entries(save.fields).map(([field, message]) => [field.replace(/^config\./, ''), message]))
  return (
    <FormDialog
      size="lg"
      onClose={onClose}
      title={value ? `Change ${value.name}` : 'New eval'}
      description={value && 'Active runs keep the old definition.'}
      action={save}
      submit={value ? 'Save eval' : 'Create eval'}
      fields={Object.keys(save.fields)}
    >
      <Field label="Name" error={save.fields['name']}>
        <Input required autoFocus value={name} onChange={(event) => setName(event.target.value)} />
      </Field>
      <EvaluatorCards
        evaluators={evaluators}
        chosen={chosen}
        onChoose={(next) => {
          setChosen(next)
          setTyped({})
          setTouched(false)
        }}
      />
      {evaluator && <p className="text-xs text-muted">{evaluator.description}</p>}
      <SchemaFields fields={fields} typed={typed} problems={touched ? { ...problems, ...refused } : refused} onChange={(next) => { setTyped(next); save.reset() }} />
      <OnlineSampling enabled={enabled} rate={rate} isJudge={evaluator?.type === 'llm'} onEnabled={setEnabled} onRate={setRate} error={save.fields['sample_rate']} />
      <TryIt definition={body} blocked={isValid ? false : 'Fill in the required fields first'} />
    </FormDialog>
  )
}

interface OnlineSamplingProps {
  enabled: boolean
  rate: number
  /** True if each verdict requires a model call. */
  isJudge: boolean
  error: string | undefined
  onEnabled(enabled: boolean): void
  onRate(rate: number): void
}

/** Sampling rate of online evaluation, with an estimate from the last day. */
function OnlineSampling({ enabled, rate, isJudge, error, onEnabled, onRate }: OnlineSamplingProps) {
  const [range] = useState(() => ({ from: new Date(Date.now() - 86_400_000).toISOString(), to: new Date().toISOString() }))
  const usage = api.useQuery('get', '/api/v1/usage/summary', { params: { query: range } }, { staleTime: 300_000 })
  const requests = usage.data?.requests
  return (
    <div className="flex flex-col gap-2">
      <Switch label="Judge new requests" hint={enabled ? undefined : 'Off: the eval runs only when you start it'} checked={enabled} onChange={(event) => onEnabled(event.target.checked)} />
      {enabled && (
        <Field
          label={`Share of new requests: ${percent(rate)}`}
          error={error}
          hint={requests === undefined ? undefined : `About ${compact(Math.round(requests * rate))} verdicts a day, based on yesterday${isJudge ? '; each one calls a model' : ''}`}
        >
          <Input type="range" className="!border-0 !px-0 accent-accent" min={0.01} max={1} step={0.01} value={rate} onChange={(event) => onRate(Number(event.target.value))} />
        </Field>
      )}
    </div>
  )
}
