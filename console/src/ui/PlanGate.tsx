import { useState, type ReactNode } from 'react'
import { client } from '@/api/client'
import { asApiError } from '@/api/error'
import { useMe, type Entitlement } from '@/api/me'
import { invalidate } from '@/api/query'
import { Button } from './Button'
import { ErrorLine } from './ErrorPanel'
import { SkeletonRows } from './Skeleton'

interface PlanGateProps {
  needs: Entitlement
  /** "Webhooks" */
  name: string
  /** Description of the feature. */
  about: ReactNode
  children: ReactNode
}

/**
 * Plan gate of a page. Without the entitlement it describes the feature; an owner can change the plan here if the
 * installation allows self-service.
 */
export function PlanGate({ needs, name, about, children }: PlanGateProps) {
  const me = useMe()
  if (!me.isLoaded) return <SkeletonRows />
  if (me.hasEntitlement(needs)) return <>{children}</>
  return <Upgrade name={name} about={about} />
}

function Upgrade({ name, about }: { name: string; about: ReactNode }) {
  const me = useMe()
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const upgrade = async () => {
    setBusy(true)
    setError(null)
    try {
      await client.PUT('/api/v1/orgs/{orgId}', { params: { path: { orgId: me.orgId } }, body: { plan: 'enterprise' } })
      await invalidate('/api/v1/auth', '/api/v1/orgs')
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  const byOperator = error !== null && asApiError(error).status === 403
  return (
    <section className="mx-auto flex w-full max-w-[560px] flex-col items-start gap-3 px-4 py-12">
      <h2 className="text-lg">{name} are turned off</h2>
      <div className="text-muted">{about}</div>
      <p className="text-muted">
        They need the plan <b className="text-fg">enterprise</b>; this organization has <b className="text-fg">{me.plan}</b>. A plan only says which features an organization on this server uses. It costs nothing.
      </p>
      {byOperator ? (
        <p>
          Only the operator of this server changes plans:{' '}
          <code className="rounded-sm bg-sunken px-1">gateway admin set-plan {me.org?.slug} enterprise</code>
        </p>
      ) : (
        <>
          <Button kind="primary" needs="owner" busy={busy} onClick={() => void upgrade()}>
            Turn on {name.toLowerCase()}
          </Button>
          <ErrorLine error={error} />
        </>
      )}
    </section>
  )
}
