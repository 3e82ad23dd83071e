import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { FlaskConical, Plus } from 'lucide-react'
import { useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { ago, percent, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, Empty, ErrorPanel, Input, NoMatch, Page, Pager, Section, SkeletonRows, Status, Table, type Column } from '@/ui'
import { ViewLinks } from '../shared/ViewLinks'
import { EvalForm } from './EvalForm'
import { LastRun, useLastRuns } from './LastRun'
import { RunList } from './RunList'
import type { EvalsSearch } from './search'

const route = getRouteApi('/shell/evals')
type Eval = Schemas['Eval']

/** List of evals and their latest runs. */
export function Evals() {
  const search: EvalsSearch = route.useSearch()
  const [creating, setCreating] = useState(false)
  const navigate = useNavigate()
  const runs = search.view === 'runs'
  return (
    <Page
      title="Evals"
      about="Checks of answers, run on logged requests and datasets"
      actions={
        <Button kind="primary" needs="member" icon={<Plus size={14} aria-hidden />} onClick={() => setCreating(true)}>
          New eval
        </Button>
      }
    >
      <ViewLinks
        label="Parts of evals"
        links={[
          { name: 'Definitions', to: '/evals', current: !runs },
          { name: 'Runs', to: '/evals', search: { view: 'runs' }, current: runs },
        ]}
      />
      {runs ? <RunList status={search.status} onStatus={(status) => void navigate({ to: '/evals', search: { view: 'runs', status } })} /> : <Definitions q={search.q ?? ''} onCreate={() => setCreating(true)} />}
      {creating && <EvalForm onClose={() => setCreating(false)} onSaved={(made) => void navigate({ to: '/evals/$evalId', params: { evalId: String(made.id) } })} />}
    </Page>
  )
}

function Definitions({ q, onCreate }: { q: string; onCreate(): void }) {
  const navigate = useNavigate()
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const list = api.useInfiniteQuery('get', '/api/v1/evals', { params: { query: { limit: 100 } } }, cursorPaging)
  const evals = list.data?.pages.flatMap((page) => page.evals) ?? []
  const found = evals.filter((one) => `${one.name} ${one.type} ${one.evaluator}`.toLowerCase().includes(q.toLowerCase()))
  const search = (next: string) => void navigate({ to: '/evals', search: { q: next || undefined }, replace: true })
  const lastRuns = useLastRuns('eval_id')
  const columns: Column<Eval>[] = [
    { key: 'name', header: 'Eval', className: 'name max-w-64 truncate font-medium', cell: (row) => row.name },
    { key: 'evaluator', header: 'Evaluator', from: 'sm', cell: (row) => <span className="whitespace-nowrap"><code>{row.evaluator}</code> <Badge>{row.type}</Badge></span> },
    { key: 'live', header: 'Live', from: 'sm', cell: (row) => (row.enabled && row.sample_rate > 0 ? <Status tone="ok">{percent(row.sample_rate)} of requests</Status> : <Status tone="muted">off</Status>) },
    { key: 'run', header: 'Last run', cell: (row) => <LastRun run={lastRuns.get(String(row.id))} now={now} /> },
    { key: 'changed', header: 'Changed', from: 'md', cell: (row) => <time dateTime={row.updated_at} title={time(row.updated_at, zone, 'full')} className="whitespace-nowrap">{ago(row.updated_at, now)}</time> },
  ]
  if (list.isError) return <ErrorPanel error={list.error} what="the evals" onRetry={() => void list.refetch()} />
  if (!list.data) return <Section flush><SkeletonRows /></Section>
  if (evals.length === 0) {
    return (
      <Empty icon={<FlaskConical size={24} aria-hidden />} title="No evals yet" action={<Button kind="primary" needs="member" onClick={onCreate}>New eval</Button>}>
        An eval gives a verdict on an answer: is it JSON, does it contain a word, is it close to the expected answer, or does another model approve it.
      </Empty>
    )
  }
  return (
    <>
      <Input type="search" aria-label="Find an eval" placeholder="Name or evaluator" className="max-w-72" value={q} onChange={(event) => search(event.target.value)} />
      {found.length === 0 ? (
        <NoMatch what="evals" onClear={() => search('')} />
      ) : (
        <Section flush>
          <Table label="Evals" columns={columns} rows={found} rowKey={(row) => row.id} onOpen={(row) => void navigate({ to: '/evals/$evalId', params: { evalId: String(row.id) } })} />
          <Pager shown={found.length} what="evals" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
        </Section>
      )}
    </>
  )
}
