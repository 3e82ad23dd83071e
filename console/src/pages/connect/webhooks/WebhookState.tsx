import type { Schemas } from '@/api/client'
import { age, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Status } from '@/ui'

export function WebhookState({ webhook }: { webhook: Schemas['Webhook'] }) {
  const { zone } = usePrefs()
  const now = useNow(30_000)
  if (!webhook.active) {
    return (
      <Status tone="muted" title={webhook.deactivated_reason ?? undefined}>
        {webhook.deactivated_reason === null ? 'off' : 'switched off by the gateway'}
      </Status>
    )
  }
  if (webhook.failing_since !== null) {
    return (
      <Status tone="err" title={time(webhook.failing_since, zone, 'full')}>
        failing for {age(webhook.failing_since, now)}
      </Status>
    )
  }
  return <Status tone="ok">active</Status>
}
