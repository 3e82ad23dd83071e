import { Link } from '@tanstack/react-router'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { useLimitNames } from '@/pages/org/limits/useLimitNames'
import { Badge } from '@/ui'

/** The limits that calls of a key can count against. Only the server knows those of keys that it replaced. */
export function KeyLimits({ apiKey }: { apiKey: Schemas['Key'] }) {
  const { orgId } = useMe()
  const names = useLimitNames()
  const list = api.useQuery('get', '/api/v1/orgs/{orgId}/limits', { params: { path: { orgId }, query: { key: apiKey.id } } })
  const limits = list.data?.limits
  return (
    <section aria-label="Limits that apply" className="flex flex-col gap-1 text-sm">
      <h3 className="font-medium">Limits that apply</h3>
      {!limits ? (
        <p className="text-muted">{list.isError ? 'They cannot be read now.' : '…'}</p>
      ) : limits.length === 0 ? (
        <p className="text-muted">Only the requests per minute of your plan.</p>
      ) : (
        <ul className="flex flex-col gap-1">
          {limits.map((limit) => (
            <li key={limit.id}>
              <Link to="/org/limits" className="text-accent underline">
                {limit.name}
              </Link>
              : {names.sentence(limit)} {limit.mode === 'dry_run' && <Badge tone="warn">dry run</Badge>}
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}
