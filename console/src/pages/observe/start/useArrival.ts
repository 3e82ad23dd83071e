import { useEffect, useState } from 'react'
import { api, client, take } from '@/api/client'
import { useLiveLogs, type LogRow } from '@/api/logs'
import type { LiveState } from '@/lib/live'

/** So long without a row, and something is probably wrong. */
const PATIENCE_MS = 60_000

export interface Arrival {
  row: LogRow | null
  state: LiveState
  /** It takes longer than it should. */
  late: boolean
  /** Asks the sandbox from here; its row counts as the first one too. */
  send(): Promise<void>
}

/** Waits for the first request of this key. */
export function useArrival(rawKey: string | null): Arrival {
  const [row, setRow] = useState<LogRow | null>(null)
  const [late, setLate] = useState(false)
  const [sent, setSent] = useState<number | null>(null)
  const keys = api.useQuery('get', '/api/v1/keys', { params: { query: { limit: 200 } } }, { enabled: rawKey !== null })
  const keyId = keys.data?.keys.find((key) => rawKey?.startsWith(key.key_prefix))?.id
  // A request that was faster than this page, or of an earlier visit.
  const earlier = api.useQuery('get', '/api/v1/logs', { params: { query: { limit: 1, key_id: keyId } } }, { enabled: row === null && keyId !== undefined })

  const state = useLiveLogs({}, (rows) => {
    const mine = rows.find((one) => one.id === sent || rawKey === null || one.key_id === keyId)
    if (mine) setRow((now) => now ?? mine)
  }, row === null)

  const connected = state.kind === 'open'
  useEffect(() => {
    // What came before the stream was there.
    if (connected && keyId) void earlier.refetch()
  }, [connected, keyId, earlier.refetch])

  const found = row ?? (rawKey === null ? null : (earlier.data?.logs[0] ?? null))
  useEffect(() => {
    if (found) return
    const timer = setTimeout(() => setLate(true), PATIENCE_MS)
    return () => clearTimeout(timer)
  }, [found])

  const send = async () => {
    const run = await take(client.POST('/api/v1/playground/run', { body: { provider: 'sandbox', model: 'sandbox-small', messages: [{ role: 'user', content: 'Hello!' }] } }))
    if (typeof run !== 'object' || run.log_id === null) return
    const logId = run.log_id
    setSent(logId)
    const { logs } = await take(client.GET('/api/v1/logs', { params: { query: { after_id: logId - 1, limit: 200 } } }))
    const mine = logs.find((one) => one.id === logId)
    if (mine) setRow(mine)
  }
  return { row: found, state, late: late && found === null, send }
}
