import { Plus, X } from 'lucide-react'
import { Button, Field, Input, SecretInput } from '@/ui'

export interface Credential {
  label: string
  weight: number
  /** Empty for a credential that is already stored. */
  apiKey: string
  isStored: boolean
}

/** Credentials of one provider. Requests are balanced between them by weight. */
export function CredentialList({ credentials, onChange }: { credentials: Credential[]; onChange: (credentials: Credential[]) => void }) {
  const set = (index: number, change: Partial<Credential>): void => onChange(credentials.map((one, at) => (at === index ? { ...one, ...change } : one)))
  return (
    <fieldset className="flex flex-col gap-2">
      <legend className="mb-1 text-sm font-medium">Several credentials</legend>
      {credentials.map((credential, index) => (
        <div key={index} className="grid grid-cols-[1fr_1.6fr_4.5rem_auto] items-center gap-2">
          <Field label={`Label of credential ${index + 1}`} quiet>
            <Input mono required value={credential.label} disabled={credential.isStored} placeholder="label" onChange={(event) => set(index, { label: event.target.value })} />
          </Field>
          <Field label={`Key of credential ${index + 1}`} quiet>
            <SecretInput mono required={!credential.isStored} value={credential.apiKey} placeholder={credential.isStored ? 'set; type to replace' : 'key'} onChange={(event) => set(index, { apiKey: event.target.value })} />
          </Field>
          <Field label={`Weight of credential ${index + 1}`} quiet>
            <Input type="number" min={1} max={1000} value={credential.weight} onChange={(event) => set(index, { weight: event.target.valueAsNumber || 1 })} />
          </Field>
          <Button kind="ghost" size="sm" square aria-label={`Remove credential ${index + 1}`} icon={<X size={14} aria-hidden />} onClick={() => onChange(credentials.filter((_, at) => at !== index))} />
        </div>
      ))}
      <div className="flex items-center gap-2 text-xs text-muted">
        <Button size="sm" icon={<Plus size={13} aria-hidden />} onClick={() => onChange([...credentials, { label: '', weight: 1, apiKey: '', isStored: false }])}>
          Add
        </Button>
        Calls are spread over them in proportion to their weight.
      </div>
    </fieldset>
  )
}

export function credentialsBody(credentials: Credential[]): { label: string; weight: number; api_key?: string }[] {
  return credentials.map(({ label, weight, apiKey }) => ({ label: label.trim(), weight, ...(apiKey !== '' && { api_key: apiKey }) }))
}
