import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Field, Input, toast, usePermissionReason } from '@/ui'

export function NameForm({ org }: { org: Schemas['Organization'] }) {
  const reason = usePermissionReason('admin')
  const [name, setName] = useState(org.name)
  const save = useAction(async () => {
    await unwrap(client.PUT('/api/v1/orgs/{orgId}', { params: { path: { orgId: org.id } }, body: { name: name.trim() } }))
    await invalidate('/api/v1/orgs', '/api/v1/auth')
    toast('Name saved')
  })
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault()
        save.run()
      }}
    >
      <div className="flex items-end gap-2">
        <Field label="Name" className="flex-1" error={save.fields['name']} hint={reason ?? undefined}>
          <Input required maxLength={100} value={name} disabled={reason !== null} onChange={(event) => setName(event.target.value)} />
        </Field>
        <Button type="submit" needs="admin" busy={save.busy} blocked={name.trim() === org.name && 'No changes'} className={reason ? 'mb-5' : undefined}>
          Rename
        </Button>
      </div>
      {save.fields['name'] === undefined && <ErrorLine error={save.error} />}
    </form>
  )
}
