import { Link, useNavigate } from '@tanstack/react-router'
import { Plus, Repeat } from 'lucide-react'
import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { ago, integer, moneyColumn, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { targetTitle } from '@/lib/replays'
import { useNow } from '@/lib/useNow'
import { Button, Empty, ErrorPanel, Page, Pager, Section, SkeletonRows, Status, Table, type Column } from '@/ui'
import { isRunning, RUN_TONE } from '../evals/RunList'

type Replay = Schemas['Replay']

/** List of replays, newest first. Polls while one is running. */
export function Replays() {
  const navigate = useNavigate()
  const { zone } = usePrefs()
  const now = useNow(15_000)
  const list = api.useInfiniteQuery(
    'get',
    '/api/v1/replays',
    { params: { query: { limit: 50 } } },
    { ...cursorPaging, meta: { quiet: true }, refetchInterval: (query) => (query.state.data?.pages.some((page) => page.replays.some(isRunning)) ? 2000 : false) },
  )
  const replays = list.data?.pages.flatMap((page) => page.replays) ?? []
  const cost = moneyColumn(replays.map((one) => one.spent_usd))
  const create = (
    <Button kind="primary" needs="member" icon={<Plus size={14} aria-hidden />} onClick={() => void navigate({ to: '/replays/new' })}>
      New replay
    </Button>
  )
  const columns: Column<Replay>[] = [
    {
      key: 'name',
      header: 'Replay',
      className: 'name max-w-96 min-w-40 truncate',
      cell: (row) => (
        <Link to="/replays/$replayId" params={{ replayId: String(row.id) }} className="font-medium" title={`Replay ${row.id}`}>
          {row.name ?? targetTitle(row.target)}
        </Link>
      ),
    },
    { key: 'target', header: 'To', className: 'max-w-72 truncate', from: 'md', cell: (row) => <code title={targetTitle(row.target)}>{targetTitle(row.target)}</code> },
    { key: 'status', header: 'State', cell: (row) => <Status tone={RUN_TONE[row.status]}>{row.status}</Status> },
    { key: 'rows', header: 'Requests', number: true, from: 'sm', cell: (row) => `${integer(row.done + row.errors)} of ${integer(row.total)}` },
    { key: 'evals', header: 'Evals', className: 'max-w-48 truncate', from: 'lg', cell: (row) => row.evals.map((one) => one.name).join(', ') || '–' },
    { key: 'cost', header: 'Cost', number: true, from: 'sm', cell: (row) => cost(row.spent_usd) },
    { key: 'at', header: 'Started', from: 'sm', cell: (row) => <time dateTime={row.created_at} title={time(row.created_at, zone, 'full')} className="whitespace-nowrap">{ago(row.created_at, now)}</time> },
  ]
  return (
    <Page title="Replay" about="Send logged requests again with another model, provider or prompt, and compare" actions={replays.length > 0 && create}>
      {list.isError ? (
        <ErrorPanel error={list.error} what="the replays" onRetry={() => void list.refetch()} />
      ) : !list.data ? (
        <Section flush>
          <SkeletonRows />
        </Section>
      ) : replays.length === 0 ? (
        <Empty icon={<Repeat size={24} aria-hidden />} title="No replays yet" action={create}>
          What would have happened if you had switched? Choose requests from the logs, change the model, the provider or the prompt, and see cost, latency and eval scores before and after.
        </Empty>
      ) : (
        <Section flush>
          <Table label="Replays" columns={columns} rows={replays} rowKey={(row) => row.id} onOpen={(row) => void navigate({ to: '/replays/$replayId', params: { replayId: String(row.id) } })} />
          <Pager shown={replays.length} what="replays" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
        </Section>
      )}
    </Page>
  )
}
