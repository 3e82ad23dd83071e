import { client, unwrap } from '@/api/client'
import { setFirstKey, useFirstKey } from '@/api/firstKey'
import { invalidate } from '@/api/query'
import { maskKey } from '@/lib/snippets'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, OneTimeSecret } from '@/ui'

/** Shows the raw key while it is in memory; afterwards offers to create another one. */
export function YourKey({ stored, onStored }: { stored: boolean; onStored(): void }) {
  const key = useFirstKey()
  const create = useAction(async () => {
    const created = await unwrap(client.POST('/api/v1/keys', { body: { name: 'First steps', scopes: ['proxy'] } }))
    setFirstKey(created.raw_key)
    await invalidate('/api/v1/keys')
  })
  if (key && !stored) {
    return (
      <OneTimeSecret title="Copy it now, you won't see it again" secret={key} onStored={onStored}>
        Store it where your other secrets are. After a reload of this page it is gone. The first key of an organization may do everything that an admin may; for an application, create a key for calling models.
      </OneTimeSecret>
    )
  }
  if (key) {
    return (
      <p className="text-muted">
        You stored <code className="text-fg">{maskKey(key)}</code>; the examples below still know it.
      </p>
    )
  }
  return (
    <div className="flex flex-col items-start gap-2">
      <p className="text-muted">A key is shown only once, when it is created. Paste the one you stored into the example below, or create another:</p>
      <Button needs="member" busy={create.busy} onClick={create.run}>
        Create another key
      </Button>
      <ErrorLine error={create.error} />
    </div>
  )
}
