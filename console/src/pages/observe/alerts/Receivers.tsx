import { Plus } from 'lucide-react'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Badge, Button, ErrorLine, Field, FormDialog, Input, Section, Select, Table, toast, type Column } from '@/ui'
import { WEBHOOK_FORMATS } from '../../connect/webhooks/events'
import { SecretShown } from '../../connect/webhooks/WebhookForm'
import { WebhookState } from '../../connect/webhooks/WebhookState'

type Webhook = Schemas['Webhook']
type Format = Schemas['WebhookFormat']

const ALERT_EVENTS = ['alert.fired', 'alert.resolved']
const isReceiver = (webhook: Webhook): boolean => webhook.events.some((event) => ALERT_EVENTS.includes(event))

/** The webhooks that are notified by every alert. */
export function Receivers() {
  const me = useMe()
  const [adding, setAdding] = useState(false)
  const entitled = me.hasEntitlement('webhooks')
  const list = api.useQuery('get', '/api/v1/webhooks', { params: { query: { limit: 200 } } }, { enabled: entitled })
  const receivers = list.data?.webhooks.filter(isReceiver) ?? []
  const columns: Column<Webhook>[] = [
    {
      key: 'url',
      header: 'Address',
      className: 'name max-w-[1px] w-1/2',
      cell: (webhook) => (
        <Link to="/webhooks/$webhookId" params={{ webhookId: webhook.id }} search={{}} className="name block truncate font-mono text-xs hover:underline">
          {webhook.url}
        </Link>
      ),
    },
    { key: 'format', header: 'Format', cell: (webhook) => <Badge>{webhook.format === 'slack' ? 'Slack' : 'JSON'}</Badge> },
    { key: 'state', header: 'State', cell: (webhook) => <WebhookState webhook={webhook} /> },
  ]
  if (!me.isLoaded) return null
  return (
    <Section
      title="Receivers"
      flush={receivers.length > 0}
      aside={
        entitled && (
          <Button size="sm" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => setAdding(true)}>
            Add receiver
          </Button>
        )
      }
    >
      {!entitled ? (
        <p className="text-muted">
          Alerts are sent to webhooks, which are turned off in this organization. Without them, alerts are only shown here. <Link to="/webhooks" className="text-accent underline">About webhooks</Link>
        </p>
      ) : list.isError ? (
        <ErrorLine error={list.error} />
      ) : receivers.length > 0 ? (
        <Table label="Receivers" columns={columns} rows={receivers} rowKey={(webhook) => webhook.id} />
      ) : (
        <p className="text-muted">{list.data ? 'Nobody is notified yet. Add a Slack-compatible channel or your own endpoint.' : '…'}</p>
      )}
      {adding && <ReceiverForm webhooks={list.data?.webhooks ?? []} onClose={() => setAdding(false)} />}
    </Section>
  )
}

/** Adds a webhook for alerts, or alerts to the events of one that exists. */
function ReceiverForm({ webhooks, onClose }: { webhooks: readonly Webhook[]; onClose: () => void }) {
  const [url, setUrl] = useState('')
  const [format, setFormat] = useState<Format>('slack')
  const [secret, setSecret] = useState<string | null>(null)
  const existing = webhooks.find((webhook) => webhook.url === url.trim() && webhook.events.length > 0)
  const add = useAction(async () => {
    if (existing) {
      const events = [...new Set([...existing.events, ...ALERT_EVENTS])]
      await unwrap(client.PUT('/api/v1/webhooks/{webhookId}', { params: { path: { webhookId: existing.id } }, body: { events, format } }))
      toast('The webhook is now notified by alerts too')
      onClose()
    } else {
      const created = await unwrap(client.POST('/api/v1/webhooks', { body: { url: url.trim(), events: ALERT_EVENTS, format } }))
      toast('Receiver added')
      // A chat does not check signatures, so there is nothing to store.
      if (format === 'slack') onClose()
      else setSecret(created.secret)
    }
    await invalidate('/api/v1/webhooks')
  })
  if (secret !== null) return <SecretShown title="Receiver added" secret={secret} onClose={onClose} />
  return (
    <FormDialog onClose={onClose} title="Add receiver" description="The receiver is notified when an alert fires and when it is resolved." action={add} submit="Add receiver" fields={['url']}>
      <Field label="Format">
        <Select value={format} onChange={(event) => setFormat(event.target.value as Format)} options={WEBHOOK_FORMATS} />
      </Field>
      <Field label="Address" hint={existing ? 'A webhook with this address exists; alerts are added to its events.' : format === 'slack' ? 'The incoming webhook URL of the channel.' : 'Must respond with 2xx within 15 seconds.'} error={add.fields['url']}>
        <Input mono type="url" required autoFocus value={url} placeholder={format === 'slack' ? 'https://hooks.slack.com/services/…' : 'https://example.com/hooks/gateway'} onChange={(event) => setUrl(event.target.value)} />
      </Field>
    </FormDialog>
  )
}
