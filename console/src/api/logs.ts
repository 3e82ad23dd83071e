/**
 * Live log rows. One stream serves all pages and tabs of this browser (see `lib/liveStream`), so it carries all rows of
 * the organization, and each subscriber applies its own filter.
 */
import { useEffect, useEffectEvent, useState } from 'react'
import { createLiveStream, type LiveStream, type LiveState } from '@/lib/liveStream'
import { authHeaders, client, unwrap, type Schemas } from './client'
import { getSession } from './session'

export type LogRow = Schemas['LogRow']

/** Rows are batched so that heavy traffic does not re-render the page for every row. */
const BATCH_MS = 250
const streams = new Map<string, LiveStream>()

function streamFor(orgId: string): LiveStream {
  const stream = streams.get(orgId) ?? createLiveStream({ name: `logs.${orgId}`, url: '/api/v1/logs/stream', headers: authHeaders, poll: pollNewer, pollIntervalMs: 2000 })
  streams.set(orgId, stream)
  return stream
}

async function pollNewer(lastId: string) {
  const after = lastId === '' ? {} : { after_id: Number(lastId) }
  const { logs } = await unwrap(client.GET('/api/v1/logs', { params: { query: { ...after, limit: lastId === '' ? 1 : 200 } } }))
  return logs.reverse().map((row) => ({ event: 'log', id: String(row.id), data: JSON.stringify(row) }))
}

/** Calls `onRows` with batches of new rows that match, newest last. */
export function useLiveLogs(matches: (row: LogRow) => boolean, onRows: (rows: LogRow[]) => void, active = true): LiveState {
  const [state, setState] = useState<LiveState>({ kind: 'connecting' })
  const orgId = getSession()?.orgId ?? ''
  const flush = useEffectEvent((rows: LogRow[]) => {
    const matching = rows.filter(matches)
    if (matching.length > 0) onRows(matching)
  })
  useEffect(() => {
    if (!active || orgId === '') return
    let batch: LogRow[] = []
    let timer: ReturnType<typeof setTimeout> | undefined
    const stop = streamFor(orgId).subscribe((event) => {
      if (event.event !== 'log') return
      batch.push(JSON.parse(event.data) as LogRow)
      timer ??= setTimeout(() => {
        timer = undefined
        flush(batch)
        batch = []
      }, BATCH_MS)
    }, setState)
    return () => {
      clearTimeout(timer)
      stop()
    }
  }, [active, orgId])
  return state
}
