import { api } from '@/api/client'
import { ApiError, isRecord } from '@/api/error'
import { Status } from '@/ui'

/** Health of the gateway's components, shown only if one is unhealthy. */
export function Components() {
  const health = api.useQuery('get', '/healthz', {}, { refetchInterval: 15_000, retry: false, meta: { quiet: true } })
  // An unhealthy gateway returns 503 with the same body.
  const failed: unknown = health.error
  const body = health.data?.components ?? (failed instanceof ApiError && isRecord(failed.details['components']) ? failed.details['components'] : {})
  const unhealthy = Object.entries(body).flatMap(([name, component]) => (isRecord(component) && component['status'] !== 'ok' ? [{ name, status: String(component['status']) }] : []))
  if (unhealthy.length === 0) return null
  return (
    <section role="alert" className="card flex flex-wrap items-center gap-x-4 gap-y-1 border-warn px-3 py-2">
      <h2 className="text-sm">Degraded</h2>
      {unhealthy.map(({ name, status }) => (
        <Status key={name} tone={status === 'down' ? 'err' : 'warn'}>
          {name.replaceAll('_', ' ')}: {status}
        </Status>
      ))}
    </section>
  )
}
