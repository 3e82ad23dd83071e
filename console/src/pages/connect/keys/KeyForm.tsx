import { useState } from 'react'
import { client, take, type Schemas } from '@/api/client'
import { refresh } from '@/api/query'
import { choiceOf, isEverything, problemOf, scopesOf } from '@/lib/scope'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, Select, toast } from '@/ui'
import { NewKeyShown } from './NewKeyShown'
import { ScopeBuilder } from './ScopeBuilder'
import { useNames } from './useNames'

/** Makes a key, or changes what one may do. */
export function KeyForm({ apiKey, onClose }: { apiKey: Schemas['Key'] | null; onClose: () => void }) {
  const { apps } = useNames()
  const [name, setName] = useState(apiKey?.name ?? '')
  const [appId, setAppId] = useState(apiKey?.app_id ?? '')
  const [limited, setLimited] = useState(apiKey !== null && !isEverything(apiKey.scopes))
  const [choice, setChoice] = useState(choiceOf(apiKey?.scopes ?? []))
  const [made, setMade] = useState<Schemas['CreatedKey'] | null>(null)
  const scopes = limited ? [...scopesOf(choice)].filter((scope) => scope !== '*') : ['*']
  const problem = problemOf(scopes)
  const save = useAction(async () => {
    const body = { name: name.trim(), app_id: appId || null, scopes }
    if (apiKey) {
      await take(client.PUT('/api/v1/keys/{keyId}', { params: { path: { keyId: apiKey.id } }, body }))
      toast(`${body.name} is changed`)
    } else setMade(await take(client.POST('/api/v1/keys', { body })))
    await refresh('/api/v1/keys')
    if (apiKey) onClose()
  })
  if (made) return <NewKeyShown title={`${made.key.name} is ready`} rawKey={made.raw_key} scopes={made.key.scopes} onClose={onClose} />
  return (
    <FormDialog
      onClose={onClose}
      title={apiKey ? `Edit ${apiKey.name}` : 'Create key'}
      action={save}
      submit={apiKey ? 'Save key' : 'Create key'}
      blocked={problem ?? false}
      fields={['name', 'app_id']}
    >
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Name" hint="What uses it: you will look for it here." error={save.fields['name']}>
          <Input value={name} required maxLength={100} autoFocus placeholder="checkout-service" onChange={(event) => setName(event.target.value)} />
        </Field>
        <Field label="Application" hint="Usage and budgets can be told apart by it." error={save.fields['app_id']}>
          <Select value={appId} onChange={(event) => setAppId(event.target.value)} options={[{ value: '', label: 'None' }, ...apps.map((app) => ({ value: app.id, label: app.name }))]} />
        </Field>
      </div>
      <ScopeBuilder limited={limited} onLimited={setLimited} choice={choice} onChoice={setChoice} scopes={scopes} problem={problem} />
    </FormDialog>
  )
}
