import { useId } from 'react'
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { defaultModel } from '@/lib/defaultModel'
import { money } from '@/lib/format'
import { Field, Input, Select } from '@/ui'

interface ModelPickerProps {
  provider: string
  model: string
  onChange(provider: string, model: string): void
  /** Hides the labels visually. */
  quiet?: boolean
}

/** The provider whose models are the named models of the organization. */
const AUTO = 'auto'

/** Selects a provider and a model, or a named model; unlisted models can be typed. */
export function ModelPicker({ provider, model, onChange, quiet }: ModelPickerProps) {
  const list = useId()
  const providers = api.useQuery('get', '/api/v1/playground/providers', {}, { staleTime: 60_000 })
  const { orgId } = useMe()
  // Must differ from the limit of the list of models: the cache key must not mix infinite and plain queries.
  const named = api.useQuery('get', '/api/v1/orgs/{orgId}/models', { params: { path: { orgId }, query: { limit: 199 } } }, { staleTime: 60_000 })
  const aliases = (named.data?.models ?? []).filter((one) => one.enabled && !one.name.endsWith('*')).map((one) => ({ id: one.name, input_per_mtok: null, output_per_mtok: null }))
  const known = [...(aliases.length > 0 ? [{ name: AUTO, configured: true, models: aliases }] : []), ...(providers.data?.providers ?? [])]
  const chosen = known.find((one) => one.name === provider)
  const price = chosen?.models.find((one) => one.id === model)
  const sorted = known.toSorted((a, b) => Number(b.name === AUTO) - Number(a.name === AUTO) || Number(b.configured) - Number(a.configured) || a.name.localeCompare(b.name))
  const names = sorted.some((one) => one.name === provider) || provider === '' ? sorted : [{ name: provider, configured: true }, ...sorted]
  return (
    <div className="grid grid-cols-[minmax(0,2fr)_minmax(0,3fr)] gap-2">
      <Field label="Provider" quiet={quiet}>
        <Select
          value={provider}
          onChange={(event) => onChange(event.target.value, defaultModel(known.find((one) => one.name === event.target.value)?.models ?? []))}
          options={names.map((one) => ({ value: one.name, label: one.name === AUTO ? 'named model' : one.configured ? one.name : `${one.name} (no credential)` }))}
        />
      </Field>
      <Field label="Model" quiet={quiet}>
        <Input mono list={list} value={model} required placeholder="model" title={price?.input_per_mtok == null ? undefined : `${money(price.input_per_mtok)} in, ${money(price.output_per_mtok)} out per million tokens`} onChange={(event) => onChange(provider, event.target.value)} />
      </Field>
      <datalist id={list}>
        {chosen?.models.map((one) => (
          <option key={one.id} value={one.id} />
        ))}
      </datalist>
    </div>
  )
}
