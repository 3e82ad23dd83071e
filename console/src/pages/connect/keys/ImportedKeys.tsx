import { api, type Schemas } from '@/api/client'
import { plural } from '@/lib/format'
import { importedTraffic } from './imported'

const DAYS = 7

/** Says how much traffic still uses imported keys, so that people see when they can be ended. */
export function ImportedKeys({ keys, now }: { keys: readonly Schemas['Key'][]; now: number }) {
  const hour = Math.floor(now / 3_600_000) * 3_600_000
  const from = new Date(hour - DAYS * 86_400_000).toISOString()
  const enabled = keys.some((key) => key.imported !== null)
  const usage = api.useQuery('get', '/api/v1/usage/breakdown', { params: { query: { by: 'key', from } } }, { enabled, staleTime: 60_000 })
  const traffic = usage.data && importedTraffic(keys, usage.data.rows, now)
  if (!traffic) return null
  return (
    <p className="card px-3 py-2 text-muted" role="note">
      {plural(traffic.keys, 'key')} of another gateway {traffic.keys === 1 ? 'is' : 'are'} accepted under <code>/compat</code>.{' '}
      {traffic.calls > 0 ? (
        <>
          In the last {DAYS} days {traffic.inUse === 1 ? 'one of them' : `${traffic.inUse} of them`} made {plural(traffic.calls, 'call')}.
        </>
      ) : (
        <>
          None made a call in the last {DAYS} days: <code>gateway keys retire-foreign</code> ends them.
        </>
      )}
    </p>
  )
}
