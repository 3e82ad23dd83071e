import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { duration, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Field, FormDialog, Input } from '@/ui'
import { NewKeySecret } from './NewKeySecret'

const MAX_OVERLAP_HOURS = 720
const HOUR_MS = 3_600_000

/** Replaces a key. The old one keeps working for a grace period. */
export function RotateKey({ apiKey, onClose }: { apiKey: Schemas['Key']; onClose: () => void }) {
  const { zone } = usePrefs()
  const now = useNow(60_000)
  const [hours, setHours] = useState(24)
  const [rotated, setMade] = useState<Schemas['Rotated'] | null>(null)
  const rotate = useAction(async () => {
    const params = { path: { keyId: apiKey.id } }
    setMade(await unwrap(client.POST('/api/v1/keys/{keyId}/rotate', { params, body: { overlap_hours: hours } })))
    await invalidate('/api/v1/keys')
  })
  if (rotated) return <NewKeySecret title={`${apiKey.name} is rotated`} rawKey={rotated.raw_key} scopes={apiKey.scopes} onClose={onClose} />
  const set = (value: number): void => setHours(Math.min(MAX_OVERLAP_HOURS, Math.max(0, Math.round(value) || 0)))
  return (
    <FormDialog
      onClose={onClose}
      title={`Rotate ${apiKey.name}`}
      description={`The new key has the same name, scopes and application.${apiKey.expires_at === null ? '' : ' It does not expire.'}`}
      action={rotate}
      submit="Rotate key"
      fields={['overlap_hours']}
    >
      <div className="grid grid-cols-[1fr_6rem] items-end gap-3">
        <Field label="The old key stays valid for" hint={hours === 0 ? 'It stops at once.' : duration(hours * HOUR_MS)} error={rotate.fields['overlap_hours']}>
          <input type="range" aria-label="Overlap, slider" min={0} max={MAX_OVERLAP_HOURS} step={1} value={hours} onChange={(event) => set(event.target.valueAsNumber)} className="h-7 w-full accent-accent" />
        </Field>
        <Field label="Hours" className="self-start">
          <Input type="number" min={0} max={MAX_OVERLAP_HOURS} value={hours} onChange={(event) => set(event.target.valueAsNumber)} />
        </Field>
      </div>
      <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1 rounded-sm bg-sunken p-3">
        <dt className="font-mono text-xs leading-5">{apiKey.key_prefix}…</dt>
        <dd>{hours === 0 ? 'stops working now' : `works until ${time(now + hours * HOUR_MS, zone)}, then stops`}</dd>
        <dt className="text-muted">the new key</dt>
        <dd>works from now on</dd>
      </dl>
    </FormDialog>
  )
}
