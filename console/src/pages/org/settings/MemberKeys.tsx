import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Field, Input, Switch, TextArea, toast, usePermissionReason } from '@/ui'
import { boundsOf, draftOf } from './memberKeys'

/** Which keys members may make for themselves. */
export function MemberKeys({ org }: { org: Schemas['Organization'] }) {
  const reason = usePermissionReason('admin')
  const [draft, setDraft] = useState(draftOf(org.settings.self_service_keys))
  const change = (fields: Partial<typeof draft>): void => setDraft((old) => ({ ...old, ...fields }))
  const save = useAction(async () => {
    await unwrap(client.PUT('/api/v1/orgs/{orgId}', { params: { path: { orgId: org.id } }, body: { settings: { self_service_keys: boundsOf(draft) } } }))
    await invalidate('/api/v1/orgs')
    toast('Limits saved')
  })
  const problem = (name: string): string | undefined => save.fields[`settings.self_service_keys.${name}`]
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault()
        save.run()
      }}
    >
      <Switch
        checked={draft.isOn}
        disabled={reason !== null}
        onChange={(event) => change({ isOn: event.target.checked })}
        label="Limit the keys that members create"
        hint={reason ?? 'Off: members can create keys with up to their own permissions. Admins are never limited.'}
      />
      {draft.isOn && (
        <>
          <Field label="Scopes" hint="One per line, such as model:gpt-4o* or provider:openai. A key without scopes of its own gets all of them." error={problem('scopes')}>
            <TextArea mono rows={3} required value={draft.scopes} disabled={reason !== null} onChange={(event) => change({ scopes: event.target.value })} />
          </Field>
          <div className="grid gap-3 sm:grid-cols-2">
            <Field label="Monthly budget of each key, USD" hint="Empty: none." error={problem('budget_usd')}>
              <Input type="number" min={0} step="any" value={draft.budget} disabled={reason !== null} onChange={(event) => change({ budget: event.target.value })} />
            </Field>
            <Field label="Keys per member" hint="Leave empty for as many as the plan allows." error={problem('max')}>
              <Input type="number" min={1} max={1000} value={draft.max} disabled={reason !== null} onChange={(event) => change({ max: event.target.value })} />
            </Field>
          </div>
        </>
      )}
      <div>
        <Button type="submit" needs="admin" busy={save.busy}>
          Save limits
        </Button>
      </div>
      {Object.keys(save.fields).length === 0 && <ErrorLine error={save.error} />}
    </form>
  )
}
