import { useId, useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, Checkbox, Dialog, Field, FormDialog, Input, Radio, OneTimeSecret, Select, Snippets, toast } from '@/ui'
import { EVENT_GROUPS, WEBHOOK_FORMATS } from './events'
import { verifySnippets } from './verify'

/** Creates a webhook or edits its URL, events and format. */
export function WebhookForm({ webhook, onClose }: { webhook: Schemas['Webhook'] | null; onClose: () => void }) {
  const [url, setUrl] = useState(webhook?.url ?? '')
  const [events, setEvents] = useState<string[]>(webhook?.events ?? [])
  const [some, setSome] = useState((webhook?.events.length ?? 0) > 0)
  const [format, setFormat] = useState<Schemas['WebhookFormat']>(webhook?.format ?? 'standard')
  const [secret, setSecret] = useState<string | null>(null)
  const group = useId()
  const save = useAction(async () => {
    const body = { url: url.trim(), events: some ? events : [], format }
    if (webhook) {
      await unwrap(client.PUT('/api/v1/webhooks/{webhookId}', { params: { path: { webhookId: webhook.id } }, body }))
      toast('Webhook saved')
    } else setSecret((await unwrap(client.POST('/api/v1/webhooks', { body }))).secret)
    await invalidate('/api/v1/webhooks')
    if (webhook) onClose()
  })
  if (secret !== null) return <SecretShown title="The webhook is active" secret={secret} onClose={onClose} />
  const toggle = (type: string, on: boolean): void => setEvents(on ? [...events, type] : events.filter((one) => one !== type))
  return (
    <FormDialog
      onClose={onClose}
      title={webhook ? 'Edit webhook' : 'Add webhook'}
      action={save}
      submit={webhook ? 'Save webhook' : 'Add webhook'}
      blocked={some && events.length === 0 && 'Choose at least one event'}
      fields={['url']}
    >
      <Field label="Address" hint="It must respond with a 2xx status within 15 seconds." error={save.fields['url']}>
        <Input mono type="url" required autoFocus value={url} placeholder="https://example.com/hooks/gateway" onChange={(event) => setUrl(event.target.value)} />
      </Field>
      <Field label="Format">
        <Select value={format} onChange={(event) => setFormat(event.target.value as Schemas['WebhookFormat'])} options={WEBHOOK_FORMATS} />
      </Field>
      <fieldset className="flex flex-col gap-2">
        <legend className="mb-1 text-sm font-medium">Events</legend>
        <Radio name={group} checked={!some} onChange={() => setSome(false)} label="All" hint="Except alerts, limits and audit checkpoints, which you select below." />
        <Radio name={group} checked={some} onChange={() => setSome(true)} label="Only these" />
        {some && (
          <div className="ml-6 grid gap-3 sm:grid-cols-2">
            {EVENT_GROUPS.map(({ name, events: list }) => (
              <fieldset key={name} className="flex flex-col gap-1.5">
                <legend className="mb-1 text-xs text-muted">{name}</legend>
                {list.map(({ type, about }) => (
                  <Checkbox key={type} checked={events.includes(type)} onChange={(event) => toggle(type, event.target.checked)} label={<code>{type}</code>} hint={about} />
                ))}
              </fieldset>
            ))}
          </div>
        )}
      </fieldset>
    </FormDialog>
  )
}

/** Shows a signing secret once, with verification snippets. */
export function SecretShown({ title, secret, note, onClose }: { title: string; secret: string; note?: string; onClose: () => void }) {
  return (
    <Dialog open onClose={onClose} title={title} size="lg" actions={<Button kind="primary" onClick={onClose}>Done</Button>}>
      <OneTimeSecret title="Signing secret" secret={secret}>
        {note ?? 'Copy it now, you won’t see it again. Your receiver needs it to verify that a delivery is from this gateway.'}
      </OneTimeSecret>
      <h3 className="text-sm">Check signatures</h3>
      <Snippets label="Check signatures" snippets={verifySnippets()} />
    </Dialog>
  )
}
