import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Field, Select, toast, usePermissionReason } from '@/ui'

/** Where requests without X-Gateway-Provider go. */
export function DefaultProvider({ org }: { org: Schemas['Organization'] }) {
  const reason = usePermissionReason('admin')
  const stored = org.settings.default_provider ?? ''
  const [provider, setProvider] = useState(stored)
  const providers = api.useQuery('get', '/api/v1/playground/providers', {}, { staleTime: 60_000 })
  const names = (providers.data?.providers ?? []).map((one) => one.name)
  const options = [
    { value: '', label: 'none: the request is refused' },
    { value: 'auto', label: 'auto: the named model, or else a provider that has the model' },
    ...[...new Set([...names, ...(stored === '' || stored === 'auto' ? [] : [stored])])].sort().map((name) => ({ value: name, label: name })),
  ]
  const save = useAction(async () => {
    await unwrap(client.PUT('/api/v1/orgs/{orgId}', { params: { path: { orgId: org.id } }, body: { settings: { default_provider: provider || null } } }))
    await invalidate('/api/v1/orgs')
    toast('Default provider saved')
  })
  const problem = save.fields['settings.default_provider'] ?? save.fields['default_provider']
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault()
        save.run()
      }}
    >
      <Field label="Default provider" hint={reason ?? 'With auto, applications need only a base URL and a key.'} error={problem}>
        <Select value={provider} disabled={reason !== null} onChange={(event) => setProvider(event.target.value)} options={options} />
      </Field>
      <div>
        <Button type="submit" needs="admin" busy={save.busy} blocked={provider === stored && 'No changes'}>
          Set default
        </Button>
      </div>
      {!problem && <ErrorLine error={save.error} />}
    </form>
  )
}
