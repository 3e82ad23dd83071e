import { versionOptions, type VersionChoice } from '@/lib/promptVersions'
import { Field, Select } from '@/ui'
import { usePrompts } from '../prompts/usePrompts'

export interface PromptTarget {
  namespace: string
  slug: string
  /** A version, a label, or null for the latest version. */
  version: VersionChoice
}

interface PromptPickerProps {
  value: PromptTarget | null
  onChange(value: PromptTarget | null): void
  /** The choice without a prompt; without it a prompt must be chosen. */
  none?: string
  hint?: string
  /** Hides the labels visually. */
  quiet?: boolean
}

/** Selects a prompt and one of its versions or labels. */
export function PromptPicker({ value, onChange, none, hint, quiet }: PromptPickerProps) {
  const { prompts } = usePrompts()
  const name = value ? `${value.namespace}/${value.slug}` : ''
  const stored = prompts.find((one) => `${one.namespace}/${one.slug}` === name)
  const names = [...new Set([...(name === '' ? [] : [name]), ...prompts.map((one) => `${one.namespace}/${one.slug}`)])]
  const choose = (next: string) => {
    const [namespace = '', slug = ''] = next.split('/')
    onChange(next === '' ? null : { namespace, slug, version: null })
  }
  return (
    <div className="grid grid-cols-[minmax(0,3fr)_minmax(0,2fr)] gap-2">
      <Field label="Prompt" hint={hint} quiet={quiet} className={value ? undefined : 'col-span-2'}>
        <Select value={name} onChange={(event) => choose(event.target.value)} options={[...(none === undefined ? (name === '' ? [{ value: '', label: 'Choose a prompt' }] : []) : [{ value: '', label: none }]), ...names]} />
      </Field>
      {value && (
        <Field label="Prompt version" quiet={quiet}>
          <Select
            value={String(value.version ?? '')}
            onChange={(event) => onChange({ ...value, version: /^\d+$/.test(event.target.value) ? Number(event.target.value) : event.target.value || null })}
            options={versionOptions(stored?.version ?? 0, stored?.labels ?? {}, value.version)}
          />
        </Field>
      )}
    </div>
  )
}
