import { api } from '@/api/client'
import { Meter } from '@/charts/Bars'
import { percent } from '@/lib/format'
import { ErrorLine, Skeleton, Status } from '@/ui'
import { quotaLines, type QuotaLine } from './quotas'

const COLORS: Record<QuotaLine['state'], string> = { ok: 'var(--series-1)', near: 'var(--warn)', full: 'var(--err)' }

/** How much of each quota of the plan is used. */
export function Quotas() {
  const query = api.useQuery('get', '/api/v1/auth/entitlements', {}, { staleTime: 0 })
  const quotas = query.data?.quotas
  if (query.isError) return <ErrorLine error={query.error} />
  if (!query.data) return <Skeleton className="h-40" />
  return (
    <div className="flex flex-col gap-3">
      {quotas ? (
        <ul className="grid gap-x-6 gap-y-3 sm:grid-cols-2" aria-label="Quotas">
          {quotaLines(quotas).map((line) => (
            <Line key={line.name} line={line} />
          ))}
        </ul>
      ) : (
        <p className="text-muted">The counts are not available right now.</p>
      )}
      <p className="text-xs text-muted">
        At a limit, creating one more is refused with 403 <code>quota_exceeded</code>: delete some, change the plan, or ask the operator for more. The daily quotas never refuse a request; they reset at midnight UTC.{' '}
        <a className="text-accent underline" href="/console/docs/configuration#quotas">
          About quotas
        </a>
      </p>
    </div>
  )
}

function Line({ line }: { line: QuotaLine }) {
  return (
    <li className="min-w-0" aria-label={line.label}>
      <div className="flex flex-wrap items-baseline justify-between gap-x-2">
        <span>{line.label}</span>
        <span className="whitespace-nowrap tabular-nums">
          {line.used} <span className="text-muted">{line.limit === null ? 'used, no limit' : `of ${line.limit}`}</span>
        </span>
      </div>
      {line.limit !== null && <Meter share={line.share} color={COLORS[line.state]} />}
      {line.state !== 'ok' && (
        <div className="mt-1 text-xs">
          <Status tone={line.state === 'full' ? 'err' : 'warn'}>{line.state === 'full' ? 'limit reached' : `${percent(line.share)} used`}</Status>
          {line.beyond !== null && <p className="text-muted">{line.beyond}</p>}
        </div>
      )}
    </li>
  )
}
