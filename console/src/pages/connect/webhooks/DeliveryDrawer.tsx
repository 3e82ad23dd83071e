import { RotateCw } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { pollingOptions, invalidate } from '@/api/query'
import { duration, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { Button, Code, ErrorLine, ErrorPanel, HttpStatus, Skeleton, Status, Tabs, toast } from '@/ui'
import { AttemptTimeline } from './AttemptTimeline'
import { DELIVERY_TONE } from './tones'

type Tab = 'attempts' | 'payload' | 'headers'

/** One delivery: attempts, payload and signature headers. */
export function DeliveryDrawer({ webhookId, deliveryId }: { webhookId: string; deliveryId: string }) {
  const { zone } = usePrefs()
  const [tab, setTab] = useState<Tab>('attempts')
  const params = { path: { webhookId, deliveryId } }
  const query = api.useQuery('get', '/api/v1/webhooks/{webhookId}/deliveries/{deliveryId}', { params }, { ...pollingOptions(2_000), placeholderData: undefined })
  const retry = useAction(async () => {
    await unwrap(client.POST('/api/v1/webhooks/{webhookId}/deliveries/{deliveryId}/retry', { params }))
    await invalidate('/api/v1/webhooks')
    toast('Delivery sent again')
  })
  const delivery = query.data
  if (query.isError && !delivery) {
    return (
      <div className="p-4">
        <ErrorPanel error={query.error} what="this delivery" onRetry={() => void query.refetch()} />
      </div>
    )
  }
  if (!delivery) {
    return (
      <div className="flex flex-col gap-3 p-4" role="status" aria-label="Loading">
        <Skeleton className="h-5 w-48" />
        <Skeleton className="h-24 w-full" />
      </div>
    )
  }
  return (
    <div className="flex min-h-0 flex-col">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 px-4 py-3">
        <code className="text-sm font-medium">{delivery.event_type}</code>
        <Status tone={DELIVERY_TONE[delivery.status]}>{delivery.status}</Status>
        <time className="min-w-0 flex-1 text-muted" title={time(delivery.created_at, zone, 'full')}>
          {time(delivery.created_at, zone)}
        </time>
        <Button size="sm" needs="admin" busy={retry.busy} icon={<RotateCw size={13} aria-hidden />} onClick={retry.run}>
          Retry
        </Button>
      </div>
      <div className="px-4">
        <ErrorLine error={retry.error} />
      </div>
      <Tabs<Tab>
        label="Parts of the delivery"
        value={tab}
        onChange={setTab}
        items={[
          { value: 'attempts', label: `Attempts ${delivery.attempts.length}`, content: <Attempts delivery={delivery} /> },
          {
            value: 'payload',
            label: 'Payload',
            content: (
              <div className="p-4">
                <Code label="Payload" code={JSON.stringify(delivery.payload, null, 2)} />
              </div>
            ),
          },
          { value: 'headers', label: 'Headers', content: <Headers delivery={delivery} /> },
        ]}
      />
    </div>
  )
}

function Attempts({ delivery }: { delivery: Schemas['Delivery'] }) {
  const { zone } = usePrefs()
  return (
    <div className="flex flex-col gap-4 p-4">
      <AttemptTimeline delivery={delivery} />
      {delivery.attempts.length === 0 && <p className="text-muted">Not tried yet.</p>}
      <ol className="flex flex-col gap-2">
        {delivery.attempts.map((attempt, index) => (
          <li key={attempt.at} className="card p-3">
            <div className="flex flex-wrap items-center gap-x-3">
              <span className="text-muted tabular-nums">{index + 1}</span>
              {attempt.status_code === null ? <Status tone="err">no answer</Status> : <HttpStatus status={attempt.status_code} />}
              <span className="tabular-nums">{duration(attempt.latency_ms)}</span>
              <time className="ml-auto text-xs text-muted">{time(attempt.at, zone, 'full')}</time>
            </div>
            {attempt.error !== null && <p className="mt-1 break-words text-err">{attempt.error}</p>}
            {attempt.response_body !== null && attempt.response_body !== '' && (
              <pre className="mt-2 max-h-40 overflow-auto rounded-sm bg-sunken p-2 whitespace-pre-wrap" tabIndex={0} role="region" aria-label={`Answer to attempt ${index + 1}`}>
                {attempt.response_body}
              </pre>
            )}
          </li>
        ))}
      </ol>
      {delivery.next_attempt_at !== null && <p className="text-muted">Next attempt {time(delivery.next_attempt_at, zone, 'full')}.</p>}
    </div>
  )
}

function Headers({ delivery }: { delivery: Schemas['Delivery'] }) {
  const last = delivery.attempts.at(-1)
  const at = last ? Math.floor(Date.parse(last.at) / 1000) : 'seconds since 1970'
  return (
    <div className="flex flex-col gap-3 p-4">
      <dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-1.5 font-mono text-xs">
        <dt className="text-muted">content-type</dt>
        <dd>application/json</dd>
        <dt className="text-muted">webhook-id</dt>
        <dd className="break-all">{delivery.event_id}</dd>
        <dt className="text-muted">webhook-timestamp</dt>
        <dd>{at}</dd>
        <dt className="text-muted">webhook-signature</dt>
        <dd className="break-all">v1,base64(HMAC-SHA256(secret, id.timestamp.body))</dd>
      </dl>
      <p className="text-xs text-muted">The id is the same in every attempt; time and signature differ. Signatures are not stored.</p>
    </div>
  )
}
