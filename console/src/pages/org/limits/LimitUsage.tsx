import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { pollingOptions } from '@/api/query'
import { Meter } from '@/charts/Bars'
import { duration, integer, time } from '@/lib/format'
import { limitNotes, unitName } from '@/lib/limits'
import { usePrefs } from '@/lib/prefs'
import { Button, Dialog, ErrorPanel, SkeletonRows, Table, type Column } from '@/ui'
import { colorOf, lastDay, shareOf } from './LimitTable'

type Bucket = Schemas['LimitBucket']

/** What is used of a limit, and what it refused. */
export function LimitUsage({ limit, sentence, onClose }: { limit: Schemas['Limit']; sentence: string; onClose(): void }) {
  const { orgId } = useMe()
  const { zone } = usePrefs()
  const usage = api.useQuery('get', '/api/v1/orgs/{orgId}/limits/{limitId}/usage', { params: { path: { orgId, limitId: limit.id } } }, pollingOptions(2_000))
  const columns: Column<Bucket>[] = [
    {
      key: 'bucket',
      header: limit.per === 'none' ? 'For' : limit.per.replace('metadata.', ''),
      className: 'name min-w-40',
      cell: (bucket) => (
        <div className="pb-1">
          <span className="name block truncate">{bucket.bucket || (limit.per === 'none' ? 'all' : 'without')}</span>
          <Meter share={shareOf(bucket)} color={colorOf(shareOf(bucket))} />
        </div>
      ),
    },
    { key: 'used', header: 'Used', number: true, cell: (bucket) => `${integer(bucket.used)} of ${integer(bucket.limit)}` },
    { key: 'unit', header: 'Of', from: 'sm', cell: (bucket) => unitName(bucket.unit) },
    { key: 'reset', header: 'Resets', number: true, from: 'sm', cell: (bucket) => (bucket.reset_seconds === null ? 'when calls finish' : bucket.reset_seconds <= 0 ? 'now' : `in ${duration(bucket.reset_seconds * 1000)}`) },
  ]
  const day = usage.data && lastDay(usage.data.refusals, Date.now())
  return (
    <Dialog open onClose={onClose} title={limit.name} description={sentence} size="lg" actions={<Button onClick={onClose}>Close</Button>}>
      {limitNotes(limit).length > 0 && <p className="text-xs text-muted">{limitNotes(limit).join(' ')}</p>}
      {usage.isError ? (
        <ErrorPanel error={usage.error} what="the usage" onRetry={() => void usage.refetch()} />
      ) : !usage.data ? (
        <SkeletonRows rows={3} />
      ) : usage.data.buckets.length === 0 ? (
        <p className="text-muted">No recent usage. It appears here while calls run.</p>
      ) : (
        <Table label="Use of the limit" columns={columns} rows={usage.data.buckets} rowKey={(bucket) => `${bucket.unit} ${bucket.bucket}`} />
      )}
      {day && (
        <p className="text-sm">
          In the last 24 hours: {integer(day.refused)} refused{limit.mode === 'dry_run' || day.would > 0 ? `, ${integer(day.would)} would have been refused` : ''}.
        </p>
      )}
      {usage.data && usage.data.refusals.length > 0 && (
        <details>
          <summary className="cursor-pointer text-sm">By hour, of the last seven days</summary>
          <ul className="mt-1 grid gap-x-6 text-xs sm:grid-cols-2">
            {usage.data.refusals.map((one) => (
              <li key={one.hour} className="flex justify-between gap-2 tabular-nums">
                <time>{time(one.hour, zone)}</time>
                <span>
                  {integer(one.refused)} refused{one.would_refuse > 0 && `, ${integer(one.would_refuse)} would have been`}
                </span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </Dialog>
  )
}
