import { lazy, Suspense, useState } from 'react'
import { client, unwrap } from '@/api/client'
import { setFirstKey, useFirstKey } from '@/api/firstKey'
import { invalidate } from '@/api/query'
import { maskKey } from '@/lib/snippets'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, OneTimeSecret } from '@/ui'

// The form of the keys page, loaded when it is opened.
const KeyForm = lazy(() => import('@/pages/connect/keys/KeyForm').then(({ KeyForm: Component }) => ({ default: Component })))

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
      <>
        <OneTimeSecret title="Copy it now, you won't see it again" secret={key} onStored={onStored}>
          Store it where your other secrets are. After a reload of this page it is gone. The first key of an organization has the permissions of an admin.
        </OneTimeSecret>
        <KeyForApplication />
      </>
    )
  }
  if (key) {
    return (
      <>
        <p className="text-muted">
          You stored <code className="text-fg">{maskKey(key)}</code>; the examples below still include it.
        </p>
        <KeyForApplication />
      </>
    )
  }
  return (
    <div className="flex flex-col items-start gap-2">
      <p className="text-muted">A key is shown only once, when it is created. Paste the one you stored into the example below, or create another one, which can only call models:</p>
      <Button needs="member" busy={create.busy} onClick={create.run}>
        Create another key
      </Button>
      <ErrorLine error={create.error} />
    </div>
  )
}

/** An application gets a key that can only call models. */
function KeyForApplication() {
  const [open, setOpen] = useState(false)
  return (
    <div className="flex flex-wrap items-center gap-3">
      <Button size="sm" needs="member" onClick={() => setOpen(true)}>
        Create a key for an application
      </Button>
      <span className="text-xs text-muted">It can call models and nothing else.</span>
      {open && (
        <Suspense fallback={null}>
          <KeyForm apiKey={null} initialScopes={['proxy']} onClose={() => setOpen(false)} />
        </Suspense>
      )}
    </div>
  )
}
