import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { Ban, EllipsisVertical, List, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { api, client, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { duration, integer, money, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { targetTitle } from '@/lib/replays'
import { useAction } from '@/lib/useAction'
import { Button, ConfirmDialog, ErrorLine, ErrorPanel, Menu, MenuItem, Page, SkeletonCards, SkeletonRows, Status } from '@/ui'
import { isRunning, RUN_TONE } from '../evals/RunList'
import { Comparison } from './Comparison'
import { ReplayRows } from './ReplayRows'
import type { ReplaySearch } from './search'

const route = getRouteApi('/shell/replays/$replayId')

/** One replay: progress, both sides of every measure, and its rows. */
export function ReplayPage() {
  const replayId = Number(route.useParams().replayId)
  const query = api.useQuery('get', '/api/v1/replays/{replayId}', { params: { path: { replayId } } }, { meta: { quiet: true }, refetchInterval: ({ state }) => (!state.data || isRunning(state.data) ? (state.dataUpdateCount < 30 ? 1000 : 5000) : false) })
  if (query.data) return <Loaded replay={query.data} />
  return (
    <Page title="Replay">
      {query.isError ? (
        <ErrorPanel error={query.error} what="this replay" onRetry={() => void query.refetch()} />
      ) : (
        <>
          <SkeletonCards />
          <SkeletonRows />
        </>
      )}
    </Page>
  )
}

function Loaded({ replay }: { replay: Schemas['ReplayDetail'] }) {
  const search: ReplaySearch = route.useSearch()
  const navigate = route.useNavigate()
  const leave = useNavigate()
  const { zone } = usePrefs()
  const [deleting, setDeleting] = useState(false)
  const path = { replayId: replay.id }
  const set = (change: Partial<ReplaySearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  const cancel = useAction(async () => {
    await client.POST('/api/v1/replays/{replayId}/cancel', { params: { path } })
    await invalidate('/api/v1/replays')
  })
  const remove = async () => {
    await client.DELETE('/api/v1/replays/{replayId}', { params: { path } })
    await leave({ to: '/replays' })
    await invalidate('/api/v1/replays')
  }
  const running = isRunning(replay)
  const page = (
    <Page
      title={replay.name ?? targetTitle(replay.target)}
      beside={<Status tone={RUN_TONE[replay.status]}>{replay.status}</Status>}
      about={
        <>
          {time(replay.created_at, zone)}, sent again to <code>{targetTitle(replay.target)}</code>
        </>
      }
      actions={
        <>
          <Button icon={<List size={14} aria-hidden />} onClick={() => void leave({ to: '/logs', search: { query: `metadata.replay_id:${replay.id}` } })}>
            New requests in logs
          </Button>
          {running && (
            <Button kind="danger" needs="member" busy={cancel.busy} icon={<Ban size={14} aria-hidden />} onClick={cancel.run}>
              Cancel replay
            </Button>
          )}
          <Menu trigger={<Button square aria-label="More" icon={<EllipsisVertical size={14} aria-hidden />} />}>
            <MenuItem danger needs="member" icon={<Trash2 size={14} aria-hidden />} onSelect={() => setDeleting(true)}>
              Delete replay
            </MenuItem>
          </Menu>
        </>
      }
    >
      <Progress replay={replay} />
      <ErrorLine error={cancel.error} />
      {replay.error && (
        <p role="alert" className="card bg-err-soft px-3 py-2 text-err">
          {replay.error}
        </p>
      )}
      <Comparison replay={replay} />
      <ReplayRows.Table replay={replay} search={search} set={set} />
      <ConfirmDialog open={deleting} onClose={() => setDeleting(false)} title="Delete this replay?" action="Delete replay" onConfirm={remove}>
        Its figures and verdicts are deleted. The log rows of both sides stay.
      </ConfirmDialog>
    </Page>
  )
  return (
    <ReplayRows.WithDrawer replay={replay} search={search} set={set}>
      {page}
    </ReplayRows.WithDrawer>
  )
}

function Progress({ replay }: { replay: Schemas['ReplayDetail'] }) {
  const { total, done, errors, spent_usd: spent, estimated_usd: estimated, started_at: started, finished_at: finished } = replay
  const share = (count: number) => `${total === 0 ? 0 : (count / total) * 100}%`
  return (
    <div>
      <div role="progressbar" aria-label="Replayed" aria-valuenow={done + errors} aria-valuemin={0} aria-valuemax={total} aria-valuetext={`${done + errors} of ${total}`} className="flex h-2 overflow-hidden rounded-full bg-line">
        <div className="h-full bg-accent" style={{ width: share(done) }} />
        <div className="h-full bg-err" style={{ width: share(errors) }} />
      </div>
      <p className="mt-1 text-xs text-muted tabular-nums" role="status">
        {integer(done + errors)} of {integer(total)} sent again
        {errors > 0 && `, ${integer(errors)} could not be`}; cost {money(spent)}
        {estimated !== null && ` of about ${money(estimated)}`}
        {started !== null && finished !== null && `; took ${duration(Date.parse(finished) - Date.parse(started))}`}
      </p>
    </div>
  )
}
