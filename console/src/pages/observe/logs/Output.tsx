import { useEffect, useState } from 'react'
import { api } from '@/api/client'
import type { LogRow } from '@/api/logs'
import { parseResponse, type Part } from '@/lib/conversation'
import { NO_VALUE } from '@/lib/format'
import { Marked } from '@/ui/Marked'

const MAX_CHARS = 200
/** Rows that only pass by while the list is scrolled are not loaded. */
const SETTLE_MS = 250

/** The beginning of the response of a row; see `OutputOfLog`. */
export function Output({ row }: { row: LogRow }) {
  return row.response_stored === 'off' ? <span className="text-muted">not kept</span> : <OutputOfLog logId={row.id} />
}

/**
 * The beginning of the response. List rows do not carry it, so the visible rows load it one by one, and only while the
 * column is chosen.
 */
export function OutputOfLog({ logId }: { logId: number }) {
  const [settled, setSettled] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), SETTLE_MS)
    return () => clearTimeout(timer)
  }, [])
  const text = api.useQuery('get', '/api/v1/logs/{logId}', { params: { path: { logId } } }, { enabled: settled, staleTime: Number.POSITIVE_INFINITY, gcTime: 60_000, select: (detail) => outputText(detail.response) })
  if (text.data === undefined) return text.isError ? <span className="text-muted">{NO_VALUE}</span> : <span className="text-muted">…</span>
  return text.data === '' ? NO_VALUE : <span title={text.data}><Marked text={text.data} /></span>
}

function outputText(response: unknown): string {
  const parts = parseResponse(response)?.messages.flatMap((message) => message.parts) ?? []
  return parts.map(partText).filter(Boolean).join(' ').slice(0, MAX_CHARS)
}

function partText(part: Part): string {
  if (part.kind === 'text' || part.kind === 'refusal') return part.text
  return part.kind === 'tool_call' ? `${part.name}(…)` : ''
}
