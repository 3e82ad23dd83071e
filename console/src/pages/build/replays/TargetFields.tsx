import { api, type Schemas } from '@/api/client'
import { parseObject } from '@/lib/replays'
import { Checkbox, Field, TextArea } from '@/ui'
import { ModelPicker } from '../shared/ModelPicker'
import { PromptPicker, type PromptTarget } from '../shared/PromptPicker'

/** What the user has chosen to change; the texts of parts that are switched off are kept. */
export interface Changes {
  withModel: boolean
  provider: string
  model: string
  prompt: PromptTarget | null
  /** Values of the variables of the prompt, by name. */
  values: Record<string, string>
  /** A JSON object. */
  params: string
}

export const NO_CHANGES: Changes = { withModel: true, provider: 'sandbox', model: 'sandbox-small', prompt: null, values: {}, params: '' }

/** The target of the request, or what is missing. */
export function targetOf(changes: Changes): { target: Schemas['ReplayTarget']; problem: string | null } {
  const { withModel, provider, model, prompt, values, params } = changes
  const parsed = parseObject(params)
  const variables = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ''))
  const target = {
    ...(withModel && { provider, model: model.trim() }),
    ...(prompt && { prompt: { namespace: prompt.namespace, slug: prompt.slug, version: prompt.version } }),
    ...(Object.keys(variables).length > 0 && { variables }),
    ...(parsed.value && { params: parsed.value }),
  }
  if (withModel && model.trim() === '') return { target, problem: 'Choose a model' }
  if (parsed.problem) return { target, problem: `Parameters: ${parsed.problem}` }
  if (!withModel && !prompt && !parsed.value) return { target, problem: 'Change the model, the prompt or a parameter' }
  return { target, problem: null }
}

/** What is changed in the requests: model, prompt, parameters. */
export function TargetFields({ value, onChange }: { value: Changes; onChange(value: Changes): void }) {
  const { prompt } = value
  const detail = api.useQuery('get', '/api/v1/prompts/{namespace}/{slug}', { params: { path: { namespace: prompt?.namespace ?? '', slug: prompt?.slug ?? '' }, query: { version: prompt?.version ?? null } } }, { enabled: prompt !== null, staleTime: 30_000 })
  const params = parseObject(value.params)
  return (
    <div className="flex flex-col gap-3">
      <Checkbox label="Another model" hint="Otherwise each request uses its original model." checked={value.withModel} onChange={(event) => onChange({ ...value, withModel: event.target.checked })} />
      {value.withModel && <ModelPicker provider={value.provider} model={value.model} onChange={(provider, model) => onChange({ ...value, provider, model })} />}
      <PromptPicker value={prompt} onChange={(next) => onChange({ ...value, prompt: next, values: {} })} none="Unchanged: the prompt that each request had" hint="Replaces the prompt of the original request" />
      {prompt && detail.data && detail.data.variables.length > 0 && (
        <fieldset className="flex flex-col gap-2">
          <legend className="mb-1 text-xs text-muted">Logs do not keep the values of variables: these are used for all requests.</legend>
          {detail.data.variables.map((variable) => (
            <Field key={variable} label={<code>{variable}</code>}>
              <TextArea rows={1} className="!min-h-[30px]" value={value.values[variable] ?? ''} onChange={(event) => onChange({ ...value, values: { ...value.values, [variable]: event.target.value } })} />
            </Field>
          ))}
        </fieldset>
      )}
      <Field label="Parameters (JSON, optional)" hint="Merged into each request" error={params.problem}>
        <TextArea mono rows={2} className="!min-h-[30px]" placeholder='{"temperature": 0}' value={value.params} onChange={(event) => onChange({ ...value, params: event.target.value })} />
      </Field>
    </div>
  )
}
