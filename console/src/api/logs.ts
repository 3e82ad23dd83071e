/**
 * Log rows as they come. There is one stream for all pages and tabs of this browser (see `lib/live`), so it carries all
 * rows of the organization, and each listener keeps those that match its filter.
 */
import { useEffect, useEffectEvent, useState } from 'react'
import { createLive, type Live, type LiveState } from '@/lib/live'
import { matches, type LogFilter } from '@/lib/logFilter'
import { authHeaders, client, take, type Schemas } from './client'
import { getSession } from './session'

export type LogRow = Schemas['LogRow']

/** New rows are handed on together, so that a busy gateway does not draw the page a thousand times a second. */
const BATCH_MS = 250
const lives = new Map<string, Live>()

function liveOf(orgId: string): Live {
  const made = lives.get(orgId) ?? createLive({ name: `logs.${orgId}`, url: '/api/v1/logs/stream', headers: authHeaders, poll: newerThan, pollEveryMs: 2000 })
  lives.set(orgId, made)
  return made
}

async function newerThan(lastId: string) {
  const after = lastId === '' ? {} : { after_id: Number(lastId) }
  const { logs } = await take(client.GET('/api/v1/logs', { params: { query: { ...after, limit: lastId === '' ? 1 : 200 } } }))
  return logs.reverse().map((row) => ({ event: 'log', id: String(row.id), data: JSON.stringify(row) }))
}

/** Hears of rows that match, in batches, newest last. */
export function useLiveLogs(filter: LogFilter, onRows: (rows: LogRow[]) => void, active = true): LiveState {
  const [state, setState] = useState<LiveState>({ kind: 'connecting' })
  const orgId = getSession()?.orgId ?? ''
  const hand = useEffectEvent((rows: LogRow[]) => {
    const matching = rows.filter((row) => matches(row, filter))
    if (matching.length > 0) onRows(matching)
  })
  useEffect(() => {
    if (!active || orgId === '') return
    let batch: LogRow[] = []
    let timer: ReturnType<typeof setTimeout> | undefined
    const stop = liveOf(orgId).subscribe((event) => {
      if (event.event !== 'log') return
      batch.push(JSON.parse(event.data) as LogRow)
      timer ??= setTimeout(() => {
        timer = undefined
        hand(batch)
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
