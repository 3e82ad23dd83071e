import { Pencil, Trash2 } from 'lucide-react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { pollingOptions } from '@/api/query'
import { Meter } from '@/charts/Bars'
import { integer, percent } from '@/lib/format'
import { limitNotes, unitName } from '@/lib/limits'
import { Badge, Button, Section, Table, type Column } from '@/ui'
import type { LimitNames } from './useLimitNames'

type Limit = Schemas['Limit']

interface Props {
  limits: readonly Limit[]
  names: LimitNames
  onShow(limit: Limit): void
  onEdit(limit: Limit): void
  onDelete(limit: Limit): void
}

/** More limits than this are looked at less often. */
const FEW = 10

export function LimitTable({ limits, names, onShow, onEdit, onDelete }: Props) {
  const interval = limits.length > FEW ? 15_000 : 5_000
  const columns: Column<Limit>[] = [
    {
      key: 'limit',
      header: 'Limit',
      className: 'name min-w-40',
      cell: (limit) => (
        <span className="flex flex-col py-1.5">
          <span className="flex flex-wrap items-center gap-1">
            <span className="font-medium wrap-anywhere">{limit.name}</span>
            {!limit.enabled ? <Badge>off</Badge> : limit.mode === 'dry_run' && <Badge tone="warn">dry run</Badge>}
          </span>
          <span>{names.sentence(limit)}</span>
          <span className="text-xs text-muted">{limitNotes(limit).join(' ')}</span>
        </span>
      ),
    },
    { key: 'use', header: 'Highest use now', className: 'min-w-28 sm:w-72 sm:min-w-32 lg:w-96', cell: (limit) => <LimitUse limit={limit} interval={interval} /> },
    {
      key: 'act',
      header: (
        <span className="relative">
          <span className="sr-only">Actions</span>
        </span>
      ),
      className: 'w-10',
      cell: (limit) => (
        <span className="flex justify-end max-sm:flex-col">
          <Button kind="ghost" size="sm" square needs="admin" aria-label={`Edit ${limit.name}`} icon={<Pencil size={14} aria-hidden />} onClick={() => onEdit(limit)} />
          <Button kind="ghost" size="sm" square needs="admin" aria-label={`Delete ${limit.name}`} icon={<Trash2 size={14} aria-hidden />} onClick={() => onDelete(limit)} />
        </span>
      ),
    },
  ]
  return (
    <Section flush>
      <Table label="Limits" columns={columns} rows={limits} rowKey={(limit) => limit.id} onOpen={onShow} />
    </Section>
  )
}

/** The bucket that is used most, and what was refused in the last day. */
function LimitUse({ limit, interval }: { limit: Limit; interval: number }) {
  const { orgId } = useMe()
  const usage = api.useQuery('get', '/api/v1/orgs/{orgId}/limits/{limitId}/usage', { params: { path: { orgId, limitId: limit.id } } }, pollingOptions(interval))
  if (usage.isError) return <span className="text-muted">cannot be read</span>
  if (!usage.data) return <span className="text-muted">…</span>
  const fullest = usage.data.buckets.reduce<Schemas['LimitBucket'] | null>((most, bucket) => (most === null || shareOf(bucket) > shareOf(most) ? bucket : most), null)
  const { refused, would } = lastDay(usage.data.refusals, Date.now())
  return (
    <div className="py-1">
      {fullest === null ? (
        <span className="text-muted">not used</span>
      ) : (
        <>
          <span className="flex flex-wrap justify-between gap-x-2 text-xs">
            <span className="min-w-0 [overflow-wrap:anywhere]" title={`${integer(fullest.used)} of ${integer(fullest.limit)} ${unitName(fullest.unit)}`}>
              {bucketName(fullest.bucket, limit.per)}{integer(fullest.used)} of {integer(fullest.limit)} {unitName(fullest.unit)}
            </span>
            <span className="tabular-nums">{percent(shareOf(fullest))}</span>
          </span>
          <Meter share={shareOf(fullest)} color={colorOf(shareOf(fullest))} />
        </>
      )}
      {refused + would > 0 && (
        <span className="block text-xs text-warn">
          {[refused > 0 && `${integer(refused)} refused`, would > 0 && `${integer(would)} would have been refused`].filter(Boolean).join(', ')} in the last{' '}
          <span className="whitespace-nowrap">24 h</span>
        </span>
      )}
    </div>
  )
}

/** `ada, `, or what calls without a user share; nothing where there is one bucket. */
function bucketName(bucket: string, per: string): string {
  if (bucket !== '') return `${bucket}, `
  return per === 'none' ? '' : `without a ${per.replace('metadata.', '')}: `
}

export function shareOf(bucket: Schemas['LimitBucket']): number {
  return bucket.limit === 0 ? 1 : Math.min(1, bucket.used / bucket.limit)
}

export function colorOf(share: number): string {
  return share >= 1 ? 'var(--err)' : share >= 0.8 ? 'var(--warn)' : 'var(--series-1)'
}

export function lastDay(refusals: readonly Schemas['LimitRefusals'][], now: number): { refused: number; would: number } {
  const recent = refusals.filter((one) => Date.parse(one.hour) > now - 86_400_000)
  return { refused: recent.reduce((sum, one) => sum + one.refused, 0), would: recent.reduce((sum, one) => sum + one.would_refuse, 0) }
}
