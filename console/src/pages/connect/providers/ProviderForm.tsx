import { useState } from 'react'
import { client, unwrap } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { parseHeaders } from '@/lib/headers'
import { useAction } from '@/lib/useAction'
import { Button, Field, FormDialog, Input, SecretInput, Select, Switch, TextArea, toast, toastWarning } from '@/ui'
import { type Credential, CredentialList, credentialsBody } from './CredentialList'
import type { Offer } from './ProviderCard'

interface Props {
  /** Null to create a custom provider. */
  offer: Offer | null
  /** Built-in providers that a custom one can be compatible with. */
  kinds: string[]
  onClose: () => void
  /** The provider is saved; `test` if it is to be tested now. */
  onSaved: (name: string, test: boolean) => void
}

const ADDRESS_HINTS: Readonly<Record<string, string>> = { 'azure-openai': 'The endpoint of your resource: https://NAME.openai.azure.com. There is no common address.' }
const KEY_HINTS: Readonly<Record<string, string>> = { bedrock: 'The access key, written ID:SECRET. Encrypted with the master key; nobody can read it back.' }

/** Creates or replaces the configuration of a provider. Secrets are write-only. */
export function ProviderForm({ offer, kinds, onClose, onSaved }: Props) {
  const { orgId } = useMe()
  const stored = offer?.stored ?? null
  const [name, setName] = useState(offer?.name ?? '')
  const [kind, setKind] = useState(offer?.kind ?? 'openai')
  const [baseUrl, setBaseUrl] = useState(stored?.base_url ?? '')
  const [apiKey, setApiKey] = useState('')
  const [headers, setHeaders] = useState('')
  const [models, setModels] = useState((stored?.models ?? []).join('\n'))
  const [keepsNothing, setKeepsNothing] = useState(stored?.no_retention ?? false)
  const [credentials, setCredentials] = useState<Credential[]>((stored?.credentials ?? []).map((one) => ({ ...one, apiKey: '', isStored: true })))
  const isCustom = offer === null || !offer.builtIn
  const store = useAction(async (test: boolean) => {
    const body = {
      base_url: baseUrl.trim() || null,
      models: models.split(/\s+/).filter(Boolean),
      no_retention: keepsNothing,
      ...(apiKey !== '' && { api_key: apiKey }),
      ...(headers.trim() !== '' && { headers: parseHeaders(headers) }),
      ...((credentials.length > 0 || (stored?.credentials.length ?? 0) > 0) && { api_keys: credentialsBody(credentials) }),
    }
    const saved = stored
      ? await unwrap(client.PUT('/api/v1/orgs/{orgId}/providers/{name}', { params: { path: { orgId, name: stored.name } }, body }))
      : await unwrap(client.POST('/api/v1/orgs/{orgId}/providers', { params: { path: { orgId } }, body: { ...body, name: name.trim(), kind: isCustom ? kind : null } }))
    await invalidate('/api/v1/orgs', '/api/v1/playground/providers')
    if (saved.secrets_dropped) toastWarning(`${name.trim()} has a new origin, so its stored API keys and headers were dropped. Enter them again.`)
    else toast(`${name.trim()} saved`)
    onClose()
    onSaved(name.trim(), test)
  })
  const save = { ...store, run: () => store.run(false) }
  return (
    <FormDialog
      onClose={onClose}
      title={offer ? `${stored ? 'Edit' : 'Connect'} ${offer.name}` : 'Add custom provider'}
      description={offer ? undefined : 'Any endpoint that is compatible with a built-in provider.'}
      action={save}
      submit={offer ? 'Save' : 'Add provider'}
      also={
        <Button busy={store.busy} onClick={(event) => event.currentTarget.form?.reportValidity() && store.run(true)}>
          {offer ? 'Save and test' : 'Add and test'}
        </Button>
      }
      fields={['name', 'models', 'kind', 'api_key', 'base_url', 'headers']}
    >
      {!offer && (
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label="Name" hint="The value for X-Gateway-Provider." error={save.fields['name']}>
            <Input mono required autoFocus value={name} placeholder="our-models" onChange={(event) => setName(event.target.value)} />
          </Field>
          <Field label="API format" hint="The request format and authentication the provider expects." error={save.fields['kind']}>
            <Select value={kind} onChange={(event) => setKind(event.target.value)} options={kinds} />
          </Field>
        </div>
      )}
      <Field label="API key" hint={stored?.has_api_key ? 'Set. Leave empty to keep it. A new host, port or scheme needs it again.' : KEY_HINTS[kind] ?? 'Encrypted with the master key; nobody can read it back.'} error={save.fields['api_key']}>
        <SecretInput mono autoComplete="off" autoFocus={offer !== null} value={apiKey} placeholder={stored?.has_api_key ? 'set; type to replace' : ''} onChange={(event) => setApiKey(event.target.value)} />
      </Field>
      <Field label="Base URL" hint={isCustom ? 'Request paths are appended unchanged.' : (ADDRESS_HINTS[kind] ?? 'Leave empty for the provider’s own address.')} error={save.fields['base_url']}>
        <Input mono type="url" value={baseUrl} placeholder="https://models.example.com" onChange={(event) => setBaseUrl(event.target.value)} />
      </Field>
      <details className="rounded-sm border border-line px-3 py-2" open={credentials.length > 0 || (isCustom && offer !== null)}>
        <summary className="font-medium">More: several credentials, headers, models, retention</summary>
        <div className="mt-3 flex flex-col gap-3">
          <CredentialList credentials={credentials} onChange={setCredentials} />
          <Field label="Headers" hint={`${stored?.has_headers ? 'Set; what you write here replaces all of them. ' : ''}One per line, Name: value. Sent with every request.`} error={save.fields['headers']}>
            <TextArea mono rows={2} value={headers} placeholder={stored?.has_headers ? 'set; type to replace' : 'X-Team: search'} onChange={(event) => setHeaders(event.target.value)} />
          </Field>
          <Field label="Models" hint="One per line. These are listed; other models can still be called." error={save.fields['models']}>
            <TextArea mono rows={3} value={models} onChange={(event) => setModels(event.target.value)} />
          </Field>
          <Switch
            checked={keepsNothing}
            onChange={(event) => setKeepsNothing(event.target.checked)}
            label="Zero data retention"
            hint="Your contract with the provider guarantees it. Callers that ask for it (OpenRouter’s zdr) are served only by such providers."
          />
        </div>
      </details>
    </FormDialog>
  )
}
