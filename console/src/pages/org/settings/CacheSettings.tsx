import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Field, Select, Switch, toast, usePermissionReason } from '@/ui'

const TTLS: { value: '5m' | '1h'; label: string }[] = [
  { value: '5m', label: '5 minutes' },
  { value: '1h', label: '1 hour' },
]

/** Prompt caches of providers: marks, and what keeps the calls of a conversation together. */
export function CacheSettings({ org }: { org: Schemas['Organization'] }) {
  const reason = usePermissionReason('admin')
  const before = org.settings.prompt_cache
  const [isOn, setOn] = useState(before.mode === 'auto')
  const [ttl, setTtl] = useState(before.ttl)
  const [follows, setFollows] = useState(org.settings.affinity === 'auto')
  const save = useAction(async () => {
    const prompt_cache = { ...before, mode: isOn ? ('auto' as const) : ('off' as const), ttl }
    const settings = { prompt_cache, affinity: follows ? ('auto' as const) : ('header' as const) }
    await unwrap(client.PUT('/api/v1/orgs/{orgId}', { params: { path: { orgId: org.id } }, body: { settings } }))
    await invalidate('/api/v1/orgs')
    toast('Settings saved')
  })
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault()
        save.run()
      }}
    >
      <Switch
        checked={isOn}
        disabled={reason !== null}
        onChange={(event) => setOn(event.target.checked)}
        label="Use provider prompt caches"
        hint={reason ?? 'Repeated input then costs about a tenth with Claude. A named model and the header X-Gateway-Prompt-Cache override this. It is paused for keys that lose money by it; saving resumes them.'}
      />
      {isOn && (
        <Field label="Keep tools and system prompt for" hint="Keeping it for an hour costs twice the input price." className="max-w-56">
          <Select value={ttl} disabled={reason !== null} onChange={(event) => setTtl(event.target.value as '5m' | '1h')} options={TTLS} />
        </Field>
      )}
      <Switch
        checked={follows}
        disabled={reason !== null}
        onChange={(event) => setFollows(event.target.checked)}
        label="Recognize conversations without a session header"
        hint="Recognized by what agents send, or by how the conversation begins. Its calls then use the same account and hit its cache."
      />
      <div>
        <Button type="submit" needs="admin" busy={save.busy}>
          Save caching
        </Button>
      </div>
      <ErrorLine error={save.error} />
    </form>
  )
}
