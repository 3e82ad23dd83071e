import { client, unwrap } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { ConfirmDialog, toast } from '@/ui'
import type { Offer } from './ProviderCard'

export function RemoveProvider({ offer, onClose }: { offer: Offer; onClose: () => void }) {
  const { orgId } = useMe()
  const remove = async (): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/providers/{name}', { params: { path: { orgId, name: offer.name } } }))
    await invalidate('/api/v1/orgs', '/api/v1/playground/providers')
    toast(`${offer.name} removed`)
  }
  return (
    <ConfirmDialog open onClose={onClose} title={`Remove ${offer.name}?`} action={offer.builtIn ? 'Remove credential' : 'Remove provider'} onConfirm={remove}>
      {offer.builtIn
        ? 'The stored credential is deleted. Requests that bring their own, or that the server has one for, keep working.'
        : 'Requests that name this provider are refused from then on. Logged requests stay.'}
    </ConfirmDialog>
  )
}
