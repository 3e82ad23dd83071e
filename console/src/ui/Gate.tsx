import { Lock } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client } from '@/api/client'
import { asApiError } from '@/api/error'
import { useMe, type Entitlement } from '@/api/me'
import { refresh } from '@/api/query'
import { Button } from './Button'
import { ErrorLine } from './ErrorPanel'
import { SkeletonRows } from './Skeleton'

interface PlanGateProps {
  needs: Entitlement
  /** "Webhooks" */
  name: string
  /** What one could do with it. */
  about: ReactNode
  children: ReactNode
}

/**
 * A page that only some plans have. Without the plan it says what the page does; an owner can change the plan right
 * here where the installation lets owners do so.
 */
export function PlanGate({ needs, name, about, children }: PlanGateProps) {
  const me = useMe()
  if (!me.known) return <SkeletonRows />
  if (me.has(needs)) return <>{children}</>
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
      await refresh('/api/v1/auth', '/api/v1/orgs')
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  const byOperator = error !== null && asApiError(error).status === 403
  return (
    <section className="mx-auto flex w-full max-w-[560px] flex-col items-start gap-3 px-4 py-12">
      <Lock size={20} className="text-muted" aria-hidden />
      <h2 className="text-lg">{name} are part of the Enterprise plan</h2>
      <div className="text-muted">{about}</div>
      <p className="text-muted">
        This organization has the plan <b className="text-fg">{me.plan}</b>.
      </p>
      {byOperator ? (
        <p>
          Plans are changed by the operator of this installation:{' '}
          <code className="rounded-sm bg-sunken px-1">gateway admin set-plan {me.org?.slug} enterprise</code>
        </p>
      ) : (
        <>
          <Button kind="primary" needs="owner" busy={busy} onClick={() => void upgrade()}>
            Switch to Enterprise
          </Button>
          <ErrorLine error={error} />
        </>
      )}
    </section>
  )
}
