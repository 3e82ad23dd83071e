import { RotateCw } from 'lucide-react'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { pollingOptions, invalidate } from '@/api/query'
import { ago, percent, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Button, DockedDrawer, Empty, ErrorLine, ErrorPanel, Field, HttpStatus, NoMatch, Pager, Select, SkeletonRows, Status, Table, toast, type Column } from '@/ui'
import { DeliveryDrawer } from './DeliveryDrawer'
import { EVENT_TYPES } from './events'
import { DELIVERY_TONE } from './tones'

type Delivery = Schemas['Delivery']

/** Deliveries, newest first, with a docked detail drawer. */
export function Deliveries({ webhookId }: { webhookId: string }) {
  const search = useSearch({ from: '/shell/webhooks/$webhookId' })
  const navigate = useNavigate({ from: '/webhooks/$webhookId' })
  const filter = { status: search.status, type: search.type }
  const list = api.useInfiniteQuery('get', '/api/v1/webhooks/{webhookId}/deliveries', { params: { path: { webhookId }, query: { ...filter, limit: 50 } } }, { ...cursorPaging, ...pollingOptions(5_000) })
  const rows = list.data?.pages.flatMap((page) => page.deliveries) ?? []
  const set = (change: Partial<typeof search>): void => void navigate({ search: (old) => ({ ...old, ...change }), replace: true })
  const failed = rows.filter((row) => row.status === 'failed').length
  const waiting = rows.filter((row) => row.status === 'pending' && row.attempts.length > 0).length
  // Deliveries that fail are pending until the last attempt.
  const what = search.status ?? (failed === 0 && waiting > 0 ? 'pending' : 'failed')
  const retryAll = useAction(async () => {
    const body = { status: what, type: search.type }
    const { retried } = await unwrap(client.POST('/api/v1/webhooks/{webhookId}/deliveries/retry', { params: { path: { webhookId } }, body }))
    await invalidate('/api/v1/webhooks')
    toast(`${plural(retried, 'delivery', 'deliveries')} sent again`)
  })
  const isFiltered = search.status !== undefined || search.type !== undefined
  return (
    <DockedDrawer
      open={search.delivery !== undefined}
      onClose={() => set({ delivery: undefined })}
      label="Delivery"
      head={<h2 className="py-0.5 text-base">Delivery</h2>}
      content={search.delivery && <DeliveryDrawer webhookId={webhookId} deliveryId={search.delivery} />}
    >
      <div className="flex flex-wrap items-center gap-2 px-4 pb-2">
        <Field label="Status" quiet className="w-36">
          <Select value={search.status ?? ''} onChange={(event) => set({ status: (event.target.value || undefined) as typeof search.status })} options={[{ value: '', label: 'Any status' }, 'pending', 'delivered', 'failed']} />
        </Field>
        <Field label="Event type" quiet className="w-44">
          <Select value={search.type ?? ''} onChange={(event) => set({ type: event.target.value || undefined })} options={[{ value: '', label: 'Any event' }, ...EVENT_TYPES, 'webhook.test']} />
        </Field>
        <Button needs="admin" busy={retryAll.busy} blocked={rows.length === 0 ? 'There is nothing to send again' : !isFiltered && failed + waiting === 0 && 'None of these has failed'} icon={<RotateCw size={14} aria-hidden />} onClick={retryAll.run}>
          Retry all {what}
          {search.type && ` ${search.type}`}
        </Button>
        <Rate rows={rows} />
      </div>
      {retryAll.error && (
        <div className="px-4 pb-2">
          <ErrorLine error={retryAll.error} />
        </div>
      )}
      <div className="min-h-0 flex-1 overflow-y-auto border-t border-line bg-surface">
        {list.isPending ? (
          <SkeletonRows />
        ) : list.isError ? (
          <ErrorPanel error={list.error} what="the deliveries" onRetry={() => void list.refetch()} />
        ) : rows.length === 0 && isFiltered ? (
          <NoMatch what="deliveries" onClear={() => set({ status: undefined, type: undefined })} />
        ) : rows.length === 0 ? (
          <Empty title="No deliveries yet">Deliveries appear here when events occur. Use “Send test event” to try it.</Empty>
        ) : (
          <Rows rows={rows} selected={search.delivery ?? null} onOpen={(row) => set({ delivery: row.id })} />
        )}
        {rows.length > 0 && <Pager shown={rows.length} what="deliveries" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
      </div>
    </DockedDrawer>
  )
}

/** Success rate of the finished deliveries. */
function Rate({ rows }: { rows: Delivery[] }) {
  const ended = rows.filter((row) => row.status !== 'pending')
  const delivered = ended.filter((row) => row.status === 'delivered').length
  return (
    <p className="ml-auto text-xs whitespace-nowrap text-muted">
      {ended.length > 0 && (
        <>
          <b className="text-sm text-fg tabular-nums">{percent(delivered / ended.length)}</b> of {plural(ended.length, 'delivery', 'deliveries')} arrived
        </>
      )}
    </p>
  )
}

function Rows({ rows, selected, onOpen }: { rows: Delivery[]; selected: string | null; onOpen: (row: Delivery) => void }) {
  const { zone } = usePrefs()
  const now = useNow(5_000)
  const columns: Column<Delivery>[] = [
    { key: 'at', header: 'Time', className: 'whitespace-nowrap', cell: (row) => <time title={time(row.created_at, zone, 'full')}>{time(row.created_at, zone)}</time> },
    { key: 'event', header: 'Event', cell: (row) => <code>{row.event_type}</code> },
    { key: 'status', header: 'Status', cell: (row) => <Status tone={DELIVERY_TONE[row.status]}>{row.status}</Status> },
    { key: 'attempts', header: 'Attempts', number: true, from: 'sm', cell: (row) => row.attempts.length },
    { key: 'code', header: 'Last response', from: 'sm', cell: (row) => <LastAnswer row={row} /> },
    { key: 'next', header: 'Next attempt', from: 'xl', className: 'whitespace-nowrap', cell: (row) => (row.next_attempt_at === null ? <span className="text-muted">–</span> : <time title={time(row.next_attempt_at, zone, 'full')}>{ago(row.next_attempt_at, now)}</time>) },
  ]
  return <Table label="Deliveries" columns={columns} rows={rows} rowKey={(row) => row.id} selected={selected} onOpen={onOpen} />
}

function LastAnswer({ row }: { row: Delivery }) {
  const last = row.attempts.at(-1)
  if (!last) return <span className="text-muted">–</span>
  return last.status_code === null ? <span className="block max-w-48 truncate lg:max-w-96" title={last.error ?? ''}>{last.error ?? 'no answer'}</span> : <HttpStatus status={last.status_code} short />
}
