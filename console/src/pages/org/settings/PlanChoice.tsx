import { useId, useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Radio, toast, usePermissionReason } from '@/ui'

const PLANS: { plan: Schemas['Plan']; about: string }[] = [
  { plan: 'free', about: 'The proxy, logs, prompts, evals, datasets and the playground.' },
  { plan: 'pro', about: 'The same with a higher rate limit for each key.' },
  { plan: 'enterprise', about: 'Everything: also skills and the shelf, webhooks, exports, and external evaluators.' },
]

/** Plan selection for owners, if the installation allows self-service. */
export function PlanChoice({ org }: { org: Schemas['Organization'] }) {
  const reason = usePermissionReason('owner')
  const group = useId()
  const [plan, setPlan] = useState(org.plan)
  const change = useAction(async () => {
    await unwrap(client.PUT('/api/v1/orgs/{orgId}', { params: { path: { orgId: org.id } }, body: { plan } }))
    await invalidate('/api/v1/orgs', '/api/v1/auth')
    toast(`Plan changed to ${plan}`)
  })
  return (
    <form
      className="flex flex-col gap-3"
      onSubmit={(event) => {
        event.preventDefault()
        change.run()
      }}
    >
      <fieldset className="flex flex-col gap-2" disabled={reason !== null}>
        <legend className="sr-only">Plan</legend>
        {PLANS.map((one) => (
          <Radio key={one.plan} name={group} checked={plan === one.plan} onChange={() => setPlan(one.plan)} label={one.plan === org.plan ? `${one.plan} (current)` : one.plan} hint={one.about} />
        ))}
      </fieldset>
      {reason && <p className="text-xs text-muted">{reason}</p>}
      <div>
        <Button type="submit" needs="owner" busy={change.busy} blocked={plan === org.plan && 'This is the current plan'}>
          Change plan
        </Button>
      </div>
      {change.error?.status === 403 ? (
        <p className="text-muted">
          Plans are changed by the operator of this installation: <code className="rounded-sm bg-sunken px-1">{`gateway admin set-plan ${org.slug} ${plan}`}</code>
        </p>
      ) : (
        <ErrorLine error={change.error} />
      )}
    </form>
  )
}
