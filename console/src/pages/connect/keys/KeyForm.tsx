import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { expiryOf, LIFETIMES } from '@/lib/keyState'
import { parseScopes, validateScopes, formatScopes } from '@/lib/scope'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, Select, toast } from '@/ui'
import { KeyLimits } from './KeyLimits'
import { NewKeySecret } from './NewKeySecret'
import { ScopeBuilder } from './ScopeBuilder'
import { useDisplayNames } from './useDisplayNames'

/** Creates a key or edits its permissions. */
export function KeyForm({ apiKey, initialScopes = [], onClose }: { apiKey: Schemas['Key'] | null; initialScopes?: string[]; onClose: () => void }) {
  const { apps } = useDisplayNames()
  const [name, setName] = useState(apiKey?.name ?? '')
  const [appId, setAppId] = useState(apiKey?.app_id ?? '')
  const [choice, setChoice] = useState(parseScopes(apiKey?.scopes ?? initialScopes))
  const [lifetime, setLifetime] = useState('')
  const [lastDay, setLastDay] = useState('')
  const [className, setClassName] = useState(apiKey?.class ?? '')
  const [waitMs, setWaitMs] = useState(apiKey?.wait_ms?.toString() ?? '')
  const [maxPriority, setMaxPriority] = useState(apiKey?.max_priority?.toString() ?? '')
  const [created, setMade] = useState<Schemas['CreatedKey'] | null>(null)
  const scopes = formatScopes(choice)
  const problem = validateScopes(scopes)
  const save = useAction(async () => {
    const queueing = { class: className.trim() || null, wait_ms: waitMs === '' ? null : Number(waitMs), max_priority: maxPriority === '' ? null : Number(maxPriority) }
    const body = { name: name.trim(), app_id: appId || null, scopes, ...queueing }
    if (apiKey) {
      await unwrap(client.PUT('/api/v1/keys/{keyId}', { params: { path: { keyId: apiKey.id } }, body }))
      toast(`${body.name} saved`)
    } else setMade(await unwrap(client.POST('/api/v1/keys', { body: { ...body, expires_at: expiryOf(lifetime, lastDay, Date.now()) } })))
    // The limits that apply to a key depend on its application.
    await invalidate('/api/v1/keys', '/api/v1/orgs/{orgId}/limits')
    if (apiKey) onClose()
  })
  if (created) return <NewKeySecret title={`${created.key.name} is ready`} rawKey={created.raw_key} scopes={created.key.scopes} onClose={onClose} />
  return (
    <FormDialog
      onClose={onClose}
      title={apiKey ? `Edit ${apiKey.name}` : 'Create key'}
      action={save}
      submit={apiKey ? 'Save key' : 'Create key'}
      blocked={problem ?? false}
      fields={['name', 'app_id', 'expires_at', 'class', 'wait_ms', 'max_priority']}
    >
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Name" hint="Name it after what uses it." error={save.fields['name']}>
          <Input value={name} required maxLength={100} autoFocus placeholder="checkout-service" onChange={(event) => setName(event.target.value)} />
        </Field>
        <Field label="Application" hint="Track usage and set budgets per application." error={save.fields['app_id']}>
          <Select value={appId} onChange={(event) => setAppId(event.target.value)} options={[{ value: '', label: 'None' }, ...apps.map((app) => ({ value: app.id, label: app.name }))]} />
        </Field>
      </div>
      {!apiKey && (
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label="Expires" hint="It stops working then. You can revoke it at any time." error={save.fields['expires_at']}>
            <Select
              value={lifetime}
              onChange={(event) => setLifetime(event.target.value)}
              options={[{ value: '', label: 'Never' }, ...LIFETIMES.map((days) => ({ value: String(days), label: days === 365 ? 'In a year' : `In ${days} days` })), { value: 'date', label: 'On a date' }]}
            />
          </Field>
          {lifetime === 'date' && (
            <Field label="Last day" hint="It works until the end of this day.">
              <Input type="date" required min={new Date().toISOString().slice(0, 10)} value={lastDay} onChange={(event) => setLastDay(event.target.value)} />
            </Field>
          )}
        </div>
      )}
      <ScopeBuilder choice={choice} onChoice={setChoice} scopes={scopes} problem={problem} />
      <details>
        <summary className="cursor-pointer text-sm font-medium">When a limit is reached</summary>
        <div className="mt-2 grid gap-3 sm:grid-cols-3">
          <Field label="Class" hint="Limits can reserve a share for a class." error={save.fields['class']}>
            <Input value={className} maxLength={40} placeholder="none" onChange={(event) => setClassName(event.target.value)} />
          </Field>
          <Field label="Wait, ms" hint="How long calls wait for a limit. X-Gateway-Wait overrides it." error={save.fields['wait_ms']}>
            <Input type="number" min={0} max={30_000} step={1} value={waitMs} placeholder="0" onChange={(event) => setWaitMs(event.target.value)} />
          </Field>
          <Field label="Highest priority" hint="The highest X-Gateway-Priority of its calls, 0 to 9." error={save.fields['max_priority']}>
            <Input type="number" min={0} max={9} step={1} value={maxPriority} placeholder="9" onChange={(event) => setMaxPriority(event.target.value)} />
          </Field>
        </div>
      </details>
      {apiKey && <KeyLimits apiKey={apiKey} />}
    </FormDialog>
  )
}
