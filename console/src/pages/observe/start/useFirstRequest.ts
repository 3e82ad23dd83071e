import { useEffect, useState } from 'react'
import { api, client, unwrap } from '@/api/client'
import { useLiveLogs, type LogRow } from '@/api/logs'
import type { LiveState } from '@/lib/liveStream'

/** Time without a request after which hints are shown. */
const SLOW_AFTER_MS = 60_000

export interface FirstRequestState {
  row: LogRow | null
  state: LiveState
  /** True if no request has arrived after `SLOW_AFTER_MS`. */
  isSlow: boolean
  /** Sends a sandbox request from the console; it counts as the first request. */
  send(): Promise<void>
}

/** Waits for the first request made with this key. */
export function useFirstRequest(rawKey: string | null): FirstRequestState {
  const [row, setRow] = useState<LogRow | null>(null)
  const [isSlow, setIsSlow] = useState(false)
  const [sentLogId, setSentLogId] = useState<number | null>(null)
  const keys = api.useQuery('get', '/api/v1/keys', { params: { query: { limit: 200 } } }, { enabled: rawKey !== null })
  const keyId = keys.data?.keys.find((key) => rawKey?.startsWith(key.key_prefix))?.id
  // A request made before this page was opened.
  const earlier = api.useQuery('get', '/api/v1/logs', { params: { query: { limit: 1, key_id: keyId } } }, { enabled: row === null && keyId !== undefined })

  const state = useLiveLogs(() => true, (rows) => {
    const match = rows.find((one) => one.id === sentLogId || rawKey === null || one.key_id === keyId)
    if (match) setRow((now) => now ?? match)
  }, row === null)

  const connected = state.kind === 'open'
  useEffect(() => {
    // Fetch requests made before the stream was connected.
    if (connected && keyId) void earlier.refetch()
  }, [connected, keyId, earlier.refetch])

  const found = row ?? (rawKey === null ? null : (earlier.data?.logs[0] ?? null))
  useEffect(() => {
    if (found) return
    const timer = setTimeout(() => setIsSlow(true), SLOW_AFTER_MS)
    return () => clearTimeout(timer)
  }, [found])

  const send = async () => {
    const run = await unwrap(client.POST('/api/v1/playground/run', { body: { provider: 'sandbox', model: 'sandbox-small', messages: [{ role: 'user', content: 'Hello!' }] } }))
    if (typeof run !== 'object' || run.log_id === null) return
    const logId = run.log_id
    setSentLogId(logId)
    const { logs } = await unwrap(client.GET('/api/v1/logs', { params: { query: { after_id: logId - 1, limit: 200 } } }))
    const match = logs.find((one) => one.id === logId)
    if (match) setRow(match)
  }
  return { row: found, state, isSlow: isSlow && found === null, send }
}
