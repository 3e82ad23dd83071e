import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input } from '@/ui'
import { SecretShown } from './WebhookForm'

/** Rotates the signing secret. Both secrets sign during the grace period. */
export function RotateSecret({ webhookId, onClose }: { webhookId: string; onClose: () => void }) {
  const { zone } = usePrefs()
  const [hours, setHours] = useState(24)
  const [rotated, setMade] = useState<Schemas['RotatedSecret'] | null>(null)
  const rotate = useAction(async () => {
    setMade(await unwrap(client.POST('/api/v1/webhooks/{webhookId}/rotate-secret', { params: { path: { webhookId } }, body: { overlap_hours: hours } })))
    await invalidate('/api/v1/webhooks')
  })
  if (rotated) {
    const until = rotated.previous_secret_until
    const note = until === null ? 'The old one no longer signs.' : `Deliveries carry a signature of the old one as well until ${time(until, zone)}.`
    return <SecretShown title="The secret is replaced" secret={rotated.secret} note={`Copy it now, you won’t see it again. ${note}`} onClose={onClose} />
  }
  return (
    <FormDialog
      onClose={onClose}
      size="sm"
      title="Replace the signing secret"
      description="Deliveries are signed with both secrets for a while, so your receiver can switch over."
      action={rotate}
      submit="Replace secret"
      fields={['overlap_hours']}
    >
      <Field label="Hours with both signatures" hint="0 to 720" error={rotate.fields['overlap_hours']}>
        <Input type="number" min={0} max={720} required value={hours} onChange={(event) => setHours(event.target.valueAsNumber || 0)} />
      </Field>
    </FormDialog>
  )
}
