import { Field, Input, Section, Select, Switch } from '@/ui'
import { PRICE_FIELDS, type ModelDraft, type PriceField, type Problems } from './draft'
import { RouteGraph } from './RouteGraph'
import { StrategyFields } from './StrategyFields'
import { TargetList, withRenamedIds, withStrategy } from './TargetList'

interface ModelEditorProps {
  draft: ModelDraft
  problems: Problems
  onChange(draft: ModelDraft): void
  /** Null, or why it cannot be edited. */
  readOnly: string | null
  isNew?: boolean
}

/** All fields of a named model. Problems are shown at their fields. */
export function ModelEditor({ draft, problems, onChange, readOnly, isNew }: ModelEditorProps) {
  const set = (change: Partial<ModelDraft>) => onChange({ ...draft, ...change })
  return (
    <div className="flex min-w-0 flex-col gap-4">
      <Section flush title="Route">
        <RouteGraph draft={draft} />
      </Section>
      {readOnly && <p className="text-xs text-muted">{readOnly}</p>}
      <fieldset disabled={readOnly !== null} className="flex min-w-0 flex-col gap-4">
        <legend className="sr-only">Definition</legend>
        <Section title="General">
          <div className="flex flex-col gap-3">
            {isNew && (
              <Field label="Name" hint="The name applications use. A * at the end makes it a pattern. It cannot be changed later." error={problems['name']} className="max-w-md">
                <Input mono required autoFocus value={draft.name} placeholder="gpt-4o" onChange={(event) => set({ name: event.target.value })} />
              </Field>
            )}
            <Field label="Description" error={problems['description']}>
              <Input value={draft.description} placeholder="For hard questions" onChange={(event) => set({ description: event.target.value })} />
            </Field>
            <div className="flex flex-wrap gap-x-6 gap-y-2">
              <Switch label="Enabled" hint="Off: calls are refused." checked={draft.enabled} onChange={(event) => set({ enabled: event.target.checked })} />
              <Switch label="Hidden" hint="Left out of model lists, but can still be called." checked={draft.hidden} onChange={(event) => set({ hidden: event.target.checked })} />
            </div>
          </div>
        </Section>
        <Section title="Strategy">
          <StrategyFields at="" strategy={draft.strategy} targets={draft.targets} problems={problems} onChange={(strategy) => set(withStrategy(strategy, draft.strategy, draft.targets))} />
        </Section>
        <Section title="Targets">
          <TargetList at="" mode={draft.strategy.mode} targets={draft.targets} problems={problems} onChange={(targets) => set({ strategy: withRenamedIds(draft.strategy, draft.targets, targets), targets })} />
        </Section>
        <Limits draft={draft} problems={problems} set={set} />
      </fieldset>
    </div>
  )
}

interface LimitsProps {
  draft: ModelDraft
  problems: Problems
  set(change: Partial<ModelDraft>): void
}

function Limits({ draft, problems, set }: LimitsProps) {
  const { cache, prompt_cache } = draft
  const numbers = [
    { field: 'retries', label: 'Retries', hint: 'At each target, 0 to 5.', placeholder: '0' },
    { field: 'timeout_ms', label: 'Timeout, ms', hint: 'Of each attempt.', placeholder: 'server default' },
    { field: 'first_byte_timeout_ms', label: 'Timeout for the first byte, ms', hint: 'Until a response starts.', placeholder: 'none' },
  ] as const
  return (
    <Section title="Limits, cache and price">
      <div className="flex flex-col gap-3">
        <div className="grid gap-3 sm:grid-cols-3">
          {numbers.map(({ field, label, hint, placeholder }) => (
            <Field key={field} label={label} hint={hint} error={problems[field]}>
              <Input inputMode="numeric" value={draft[field]} placeholder={placeholder} onChange={(event) => set({ [field]: event.target.value })} />
            </Field>
          ))}
        </div>
        <div className="grid gap-3 sm:grid-cols-3">
          <Field label="Response cache" hint="Default for calls that do not send X-Gateway-Cache.">
            <Select value={cache.mode} onChange={(event) => set({ cache: { ...cache, mode: event.target.value as ModelDraft['cache']['mode'] } })} options={[{ value: '', label: 'off' }, { value: 'exact', label: 'exact' }, { value: 'semantic', label: 'semantic' }]} />
          </Field>
          {cache.mode !== '' && (
            <>
              <Field label="Cache for, seconds" error={problems['cache.ttl']}>
                <Input inputMode="numeric" value={cache.ttl} placeholder="3600" onChange={(event) => set({ cache: { ...cache, ttl: event.target.value } })} />
              </Field>
              <Field label="Cache namespace" error={problems['cache.namespace']}>
                <Input mono value={cache.namespace} onChange={(event) => set({ cache: { ...cache, namespace: event.target.value } })} />
              </Field>
            </>
          )}
        </div>
        <div className="grid gap-3 sm:grid-cols-3">
          <Field label="Prompt cache" hint="Uses the provider’s prompt cache. Default for calls that do not send X-Gateway-Prompt-Cache.">
            <Select
              value={prompt_cache.mode}
              onChange={(event) => set({ prompt_cache: { ...prompt_cache, mode: event.target.value as ModelDraft['prompt_cache']['mode'] } })}
              options={[
                { value: '', label: 'same as the organization' },
                { value: 'auto', label: 'on' },
                { value: 'off', label: 'off' },
              ]}
            />
          </Field>
          {prompt_cache.mode === 'auto' && (
            <>
              <Field label="Kept for">
                <Select
                  value={prompt_cache.ttl}
                  onChange={(event) => set({ prompt_cache: { ...prompt_cache, ttl: event.target.value as '5m' | '1h' } })}
                  options={[
                    { value: '5m', label: '5 minutes' },
                    { value: '1h', label: '1 hour' },
                  ]}
                />
              </Field>
              <Field label="Shortest prefix, tokens" error={problems['prompt_cache.min_tokens']}>
                <Input inputMode="numeric" value={prompt_cache.min_tokens} placeholder="1024" onChange={(event) => set({ prompt_cache: { ...prompt_cache, min_tokens: event.target.value } })} />
              </Field>
            </>
          )}
        </div>
        <fieldset>
          <legend className="text-sm font-medium">Price, USD per million tokens</legend>
          <p className="mb-2 text-xs text-muted">Only for models without a known price, or to override it; it counts for all targets.</p>
          <div className="grid grid-cols-2 gap-3 sm:grid-cols-5">
            {Object.entries(PRICE_FIELDS).map(([field, label]) => (
              <Field key={field} label={label} error={problems[`price.${field}`]}>
                <Input inputMode="decimal" value={draft.price[field as PriceField]} onChange={(event) => set({ price: { ...draft.price, [field]: event.target.value } })} />
              </Field>
            ))}
          </div>
        </fieldset>
      </div>
    </Section>
  )
}
