import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Field, Input, Switch, toast, usePermissionReason } from '@/ui'

/** Log retention and body storage. */
export function LogSettings({ org }: { org: Schemas['Organization'] }) {
  const reason = usePermissionReason('admin')
  const [bodies, setBodies] = useState(org.settings.log_bodies)
  const [days, setDays] = useState(org.settings.log_retention_days?.toString() ?? '')
  const save = useAction(async () => {
    const settings = { log_bodies: bodies, log_retention_days: days === '' ? null : Number(days) }
    await unwrap(client.PUT('/api/v1/orgs/{orgId}', { params: { path: { orgId: org.id } }, body: { settings } }))
    await invalidate('/api/v1/orgs')
    toast('Settings saved')
  })
  const isSame = bodies === org.settings.log_bodies && days === (org.settings.log_retention_days?.toString() ?? '')
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault()
        save.run()
      }}
    >
      <Switch
        checked={bodies}
        disabled={reason !== null}
        onChange={(event) => setBodies(event.target.checked)}
        label="Keep request and response bodies"
        hint={reason ?? 'Up to 256 KiB each. Off: rows still have tokens, cost and timing, but no conversation. X-Gateway-Log: metadata does the same for one request.'}
      />
      <Field label="Keep logs for (days)" hint="Leave empty to use the server default." error={save.fields['settings.log_retention_days'] ?? save.fields['log_retention_days']} className="max-w-56">
        <Input type="number" min={1} max={36500} value={days} disabled={reason !== null} placeholder="Server default" onChange={(event) => setDays(event.target.value)} />
      </Field>
      <div>
        <Button type="submit" needs="admin" busy={save.busy} blocked={isSame && 'No changes'}>
          Save
        </Button>
      </div>
      {Object.keys(save.fields).length === 0 && <ErrorLine error={save.error} />}
    </form>
  )
}
