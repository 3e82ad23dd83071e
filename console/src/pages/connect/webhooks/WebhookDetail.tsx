/** One webhook with its deliveries and redelivery. */
import { EllipsisVertical, FlaskConical, Pencil, Power, RotateCw, ShieldCheck, Trash2 } from 'lucide-react'
import { useNavigate, useParams } from '@tanstack/react-router'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { pollingOptions, invalidate } from '@/api/query'
import { type Action, useAction } from '@/lib/useAction'
import { Button, ConfirmDialog, ErrorLine, ErrorPanel, Menu, MenuItem, Page, PlanGate, SkeletonRows, Snippets, Dialog, toast } from '@/ui'
import { Deliveries } from './Deliveries'
import { RotateSecret } from './RotateSecret'
import { verifySnippets } from './verify'
import { WebhookForm } from './WebhookForm'
import { WebhookState } from './WebhookState'

type Open = 'edit' | 'secret' | 'verify' | 'delete' | null

export function WebhookDetail() {
  const { webhookId } = useParams({ from: '/shell/webhooks/$webhookId' })
  return (
    <PlanGate needs="webhooks" name="Webhooks" about="A webhook sends organization events to your endpoint.">
      <Detail webhookId={webhookId} />
    </PlanGate>
  )
}

function Detail({ webhookId }: { webhookId: string }) {
  const navigate = useNavigate()
  const [open, setOpen] = useState<Open>(null)
  const path = { path: { webhookId } }
  const query = api.useQuery('get', '/api/v1/webhooks/{webhookId}', { params: path }, { ...pollingOptions(5_000), placeholderData: undefined })
  const close = (): void => setOpen(null)
  const test = useAction(async () => {
    await unwrap(client.POST('/api/v1/webhooks/{webhookId}/test', { params: path }))
    await invalidate('/api/v1/webhooks')
    toast('Test event sent')
  })
  const activate = useAction(async (active: boolean) => {
    await unwrap(client.PUT('/api/v1/webhooks/{webhookId}', { params: path, body: { active } }))
    await invalidate('/api/v1/webhooks')
    toast(active ? 'Webhook active again' : 'Webhook paused')
  })
  const remove = async (): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/webhooks/{webhookId}', { params: path }))
    await navigate({ to: '/webhooks' })
    await invalidate('/api/v1/webhooks')
    toast('Webhook deleted')
  }
  const webhook = query.data
  if (query.isError && !webhook) {
    return (
      <Page title="Webhook">
        <ErrorPanel error={query.error} what="this webhook" onRetry={() => void query.refetch()} />
      </Page>
    )
  }
  if (!webhook) {
    return (
      <Page title="Webhook">
        <SkeletonRows />
      </Page>
    )
  }
  return (
    <Page
      fixed
      title={hostOf(webhook.url)}
      about={
        <span className="flex flex-wrap items-center gap-x-3">
          <span className="name min-w-0 truncate font-mono text-xs">{webhook.url}</span>
          <span className="text-fg">
            <WebhookState webhook={webhook} />
          </span>
        </span>
      }
      actions={
        <>
          <Button needs="admin" busy={test.busy} icon={<FlaskConical size={14} aria-hidden />} onClick={test.run}>
            <span className="max-sm:sr-only">Send test event</span>
          </Button>
          <Menu trigger={<Button square aria-label="More actions" icon={<EllipsisVertical size={16} aria-hidden />} />}>
            <MenuItem needs="admin" icon={<Pencil size={14} aria-hidden />} onSelect={() => setOpen('edit')}>
              Edit…
            </MenuItem>
            {webhook.active && (
              <MenuItem needs="admin" icon={<Power size={14} aria-hidden />} onSelect={() => activate.run(false)}>
                Switch off
              </MenuItem>
            )}
            <MenuItem needs="admin" icon={<RotateCw size={14} aria-hidden />} onSelect={() => setOpen('secret')}>
              Replace secret…
            </MenuItem>
            <MenuItem icon={<ShieldCheck size={14} aria-hidden />} onSelect={() => setOpen('verify')}>
              How to check signatures
            </MenuItem>
            <MenuItem needs="admin" danger icon={<Trash2 size={14} aria-hidden />} onSelect={() => setOpen('delete')}>
              Delete…
            </MenuItem>
          </Menu>
        </>
      }
    >
      {(test.error ?? activate.error) && (
        <div className="px-4 pb-2">
          <ErrorLine error={test.error ?? activate.error} />
        </div>
      )}
      {!webhook.active && <Inactive webhook={webhook} activate={activate} />}
      <Deliveries webhookId={webhookId} />
      {open === 'edit' && <WebhookForm webhook={webhook} onClose={close} />}
      {open === 'secret' && <RotateSecret webhookId={webhookId} onClose={close} />}
      {open === 'verify' && (
        <Dialog open onClose={close} size="lg" title="Check signatures" description="Deliveries follow Standard Webhooks; libraries for it exist in most languages.">
          <Snippets label="Check signatures" snippets={verifySnippets()} />
        </Dialog>
      )}
      <ConfirmDialog open={open === 'delete'} onClose={close} title={`Delete the webhook to ${hostOf(webhook.url)}?`} action="Delete webhook" onConfirm={remove}>
        Nothing is sent to it any more, and the record of its deliveries is deleted.
      </ConfirmDialog>
    </Page>
  )
}

/** Banner of a disabled webhook, with a button to enable it again. */
function Inactive({ webhook, activate }: { webhook: Schemas['Webhook']; activate: Action<[boolean]> }) {
  return (
    <div className="mx-4 mb-2 flex flex-wrap items-center gap-2 rounded-sm border border-line bg-warn-soft px-3 py-2">
      <p className="min-w-0 flex-1">
        {webhook.deactivated_reason === null ? 'This webhook is off: events are not sent to it.' : `The gateway switched it off: ${webhook.deactivated_reason}. Events since then were not sent.`}
      </p>
      <Button size="sm" needs="admin" busy={activate.busy} onClick={() => activate.run(true)}>
        Reactivate
      </Button>
    </div>
  )
}

function hostOf(url: string): string {
  try {
    return new URL(url).host
  } catch {
    return url
  }
}
