import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { ago, money, plural } from '@/lib/format'
import { ConfirmDialog, Skeleton, toast } from '@/ui'

const DAY_MS = 86_400_000

/** Revokes a key at once, after showing its recent use. */
export function RevokeKey({ apiKey, onClose }: { apiKey: Schemas['Key']; onClose: () => void }) {
  const [opened] = useState(() => Date.now())
  const query = { key_id: apiKey.id, from: new Date(opened - DAY_MS).toISOString(), to: new Date(opened).toISOString() }
  const usage = api.useQuery('get', '/api/v1/usage/summary', { params: { query } })
  const revoke = async (): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/keys/{keyId}', { params: { path: { keyId: apiKey.id } } }))
    await invalidate('/api/v1/keys')
    toast(`${apiKey.name} revoked`)
  }
  return (
    <ConfirmDialog open onClose={onClose} title={`Revoke ${apiKey.name}?`} action="Revoke key" onConfirm={revoke}>
      <p>
        Requests with <code>{apiKey.key_prefix}…</code> are refused from the next one on. This cannot be undone.
      </p>
      <div className="mt-2 rounded-sm bg-sunken p-2" role="status">
        {usage.data ? (
          usage.data.requests > 0 ? (
            <>
              In the last 24 hours it made <b className="text-fg">{plural(usage.data.requests, 'request')}</b> for {money(usage.data.cost_usd)}
              {apiKey.last_used_at !== null && <>, the last one {ago(apiKey.last_used_at, opened)}</>}.
            </>
          ) : (
            'It was not used in the last 24 hours.'
          )
        ) : usage.isError ? (
          'Recent usage could not be loaded.'
        ) : (
          <Skeleton className="h-4 w-64" />
        )}
      </div>
    </ConfirmDialog>
  )
}
