import { client, take } from '@/api/client'
import { keepFirstKey, useFirstKey } from '@/api/firstKey'
import { refresh } from '@/api/query'
import { maskKey } from '@/lib/snippets'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, SecretOnce } from '@/ui'

/** The raw key, as long as this page remembers it; then only the offer of another one. */
export function YourKey({ stored, onStored }: { stored: boolean; onStored(): void }) {
  const key = useFirstKey()
  const create = useAction(async () => {
    const made = await take(client.POST('/api/v1/keys', { body: { name: 'First steps' } }))
    keepFirstKey(made.raw_key)
    await refresh('/api/v1/keys')
  })
  if (key && !stored) {
    return (
      <SecretOnce title="Shown only now" secret={key} onStored={onStored}>
        Store it where your other secrets are. After a reload of this page it is gone.
      </SecretOnce>
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
      <p className="text-muted">A key is shown once, when it is made. Have you stored it? Put it into the example below. If not, make another one:</p>
      <Button needs="member" busy={create.busy} onClick={create.run}>
        Create another key
      </Button>
      <ErrorLine error={create.error} />
    </div>
  )
}
