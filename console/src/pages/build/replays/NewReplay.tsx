import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { useRef, useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { asApiError } from '@/api/error'
import { invalidate } from '@/api/query'
import { plural } from '@/lib/format'
import { rangeName, type RangeSearch } from '@/lib/range'
import { parseIds } from '@/lib/replays'
import { useAction } from '@/lib/useAction'
import { useSettled } from '@/lib/useSettled'
import { useRange } from '@/lib/useRange'
import { Button, ErrorLine, Field, Input, Page, Section } from '@/ui'
import { QueryBox } from '../../observe/query/QueryBox'
import { EvalChoice } from '../shared/EvalChoice'
import { EstimateCard } from './EstimateCard'
import { MAX_LOG_IDS, type NewReplaySearch } from './search'
import { NO_CHANGES, TargetFields, targetOf, type Changes } from './TargetFields'

const route = getRouteApi('/shell/replays/new')
const MAX_EVALS = 5
const MAX_ROWS = 1000

/** Form of a replay: which requests, what changes, which evals; with the estimate before it starts. */
export function NewReplay() {
  const search: NewReplaySearch & RangeSearch = route.useSearch()
  const navigate = useNavigate()
  const set = route.useNavigate()
  const range = useRange()
  const box = useRef<HTMLInputElement>(null)
  const ids = parseIds(search.logs, MAX_LOG_IDS)
  const [limit, setLimit] = useState('100')
  const [changes, setChanges] = useState<Changes>(NO_CHANGES)
  const [evalIds, setEvalIds] = useState<number[]>([])
  const [name, setName] = useState('')
  const [maxCost, setMaxCost] = useState('')

  const { target, problem } = targetOf(changes)
  const rows = ids.length > 0 ? { log_ids: ids } : { query: search.query ?? '', from: range.from, to: range.span === null ? range.to : null, limit: Math.min(MAX_ROWS, Math.max(1, Math.trunc(Number(limit)) || 1)) }
  const request: Schemas['ReplayRequest'] = { ...rows, target, eval_ids: evalIds }
  const text = useSettled(JSON.stringify(request))
  const settled = text === JSON.stringify(request)
  const estimate = api.useQuery('post', '/api/v1/replays/estimate', { body: JSON.parse(text) as Schemas['ReplayRequest'] }, { enabled: problem === null, staleTime: 60_000, retry: false, placeholderData: (before) => before })
  const failure = problem === null && estimate.error ? asApiError(estimate.error) : null
  const queryError = failure?.fields['query'] !== undefined && failure.details['position'] !== undefined ? failure : null
  const start = useAction(async () => {
    if (!estimate.data) return
    // Exactly the rows of the estimate, even if newer ones match by now.
    const created = await unwrap(client.POST('/api/v1/replays', { body: { log_ids: estimate.data.log_ids, target, eval_ids: evalIds, name: name.trim() || null, max_cost_usd: maxCost === '' ? null : Number(maxCost) } }))
    await invalidate('/api/v1/replays')
    await navigate({ to: '/replays/$replayId', params: { replayId: String(created.id) } })
  })
  const blocked = problem ?? (failure ? 'See the error in the estimate' : !estimate.data || !settled || estimate.isPlaceholderData ? 'Wait for the estimate' : false)
  return (
    <Page title="New replay" about="Requests are sent again unchanged, except for what you set here. The stored answers are kept.">
      <form
        className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(280px,360px)]"
        onSubmit={(event) => {
          event.preventDefault()
          if (blocked === false) start.run()
        }}
      >
        <div className="flex min-w-0 flex-col gap-4">
          <Section title="1. Requests">
            {ids.length > 0 ? (
              <p className="flex flex-wrap items-center gap-2">
                {plural(ids.length, 'request')} selected in the logs
                <Button size="sm" onClick={() => void set({ search: (before) => ({ ...before, logs: undefined }) })}>
                  Choose by query instead
                </Button>
              </p>
            ) : (
              <div className="grid gap-3 sm:grid-cols-[minmax(0,1fr)_110px]">
                <div className="flex min-w-0 flex-col gap-1">
                  <p className="text-sm font-medium">Requests that match</p>
                  <QueryBox value={search.query ?? ''} onChange={(query) => void set({ search: (before) => ({ ...before, query: query || undefined }), replace: true })} error={queryError} inputRef={box} placeholder="All chats. Filter: model:gpt-4o* user:maria" />
                  <p className="text-xs text-muted">Newest first. Time range: {range.span === null ? 'as chosen at the top' : rangeName(search.range).toLowerCase()}</p>
                </div>
                <Field label="At most">
                  <Input type="number" min={1} max={MAX_ROWS} required value={limit} onChange={(event) => setLimit(event.target.value)} />
                </Field>
              </div>
            )}
          </Section>
          <Section title="2. What changes">
            <TargetFields value={changes} onChange={setChanges} />
          </Section>
          <Section title="3. Evals">
            <EvalChoice chosen={evalIds} onChange={setEvalIds} max={MAX_EVALS} none="No evals yet: the replay compares cost, latency and answers." about="They score the answers before and after." />
          </Section>
        </div>
        <Section title="Estimate" className="lg:sticky lg:top-4">
          <div className="flex flex-col gap-3">
            <EstimateCard estimate={problem === null && !failure ? estimate.data : undefined} busy={problem === null && (estimate.isFetching || !settled)} hint={problem} />
            {!queryError && <ErrorLine error={failure} />}
            <Field label="Name (optional)" error={start.fields['name']}>
              <Input value={name} maxLength={100} placeholder="To the smaller model" onChange={(event) => setName(event.target.value)} />
            </Field>
            <Field label="Stop at a cost of (USD, optional)" error={start.fields['max_cost_usd']} hint="Does not start if the estimate is higher, and stops once this is spent">
              <Input type="number" min={0} step="any" value={maxCost} onChange={(event) => setMaxCost(event.target.value)} />
            </Field>
            {Object.keys(start.fields).every((field) => !['name', 'max_cost_usd'].includes(field)) && <ErrorLine error={start.error} />}
            <Button kind="primary" type="submit" needs="member" busy={start.busy} blocked={blocked}>
              {estimate.data && blocked === false ? `Replay ${plural(estimate.data.rows, 'request')}` : 'Start replay'}
            </Button>
          </div>
        </Section>
      </form>
    </Page>
  )
}
