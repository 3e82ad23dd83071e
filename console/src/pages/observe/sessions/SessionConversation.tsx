import { useQueries } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { api } from '@/api/client'
import type { LogRow } from '@/api/logs'
import { parseResponse, parseRequest } from '@/lib/conversation'
import { duration, money, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { conversationTurns } from '@/lib/conversationTurns'
import { Button, HttpStatus, Skeleton } from '@/ui'
import { MessageView } from '../log/MessageView'

/** Requests loaded per step; each one is a separate API call. */
const STEP = 20

interface SessionConversationProps {
  requests: readonly LogRow[]
  onOpen(logId: number): void
}

export function SessionConversation({ requests, onOpen }: SessionConversationProps) {
  const { zone } = usePrefs()
  const [shown, setShown] = useState(STEP)
  const inOrder = useMemo(() => requests.toSorted((a, b) => a.id - b.id), [requests])
  const read = inOrder.slice(0, shown)
  const details = useQueries({
    queries: read.map((row) => ({ ...api.queryOptions('get', '/api/v1/logs/{logId}', { params: { path: { logId: row.id } } }), staleTime: Number.POSITIVE_INFINITY })),
  })
  const bodies = details.map((query) => query.data)
  const turns = useMemo(
    () => conversationTurns(bodies.map((log) => ({ request: log ? parseRequest(log.request) : null, response: log ? parseResponse(log.response) : null }))),
    // Recompute when another body is loaded.
    [bodies.map((log) => log?.id ?? '').join()],
  )
  return (
    <ol className="flex flex-col gap-5 p-4">
      {read.map((row, at) => (
        <li key={row.id} className="flex flex-col gap-2">
          <button type="button" className="flex min-h-7 flex-wrap items-center gap-x-3 rounded-sm border-b border-line px-1 text-left text-xs hover:bg-sunken" onClick={() => onOpen(row.id)}>
            <time className="text-muted tabular-nums" dateTime={row.created_at} title={time(row.created_at, zone, 'full')}>
              {time(row.created_at, zone, 'time')}
            </time>
            <HttpStatus status={row.status} code={row.error_code} />
            <code className="text-muted">
              {row.provider}/{row.model}
            </code>
            <span className="ml-auto text-muted tabular-nums">
              {duration(row.latency_ms)} · {money(row.cost_usd)}
            </span>
          </button>
          {bodies[at] ? (
            <>
              {turns[at]?.newMessages.map((message, index) => <MessageView key={index} message={message} markdown={false} folded={message.role === 'system'} />)}
              {turns[at]?.responseMessages.map((message, index) => <MessageView key={`a${index}`} message={message} markdown={false} isResponse />)}
              {turns[at]?.newMessages.length === 0 && turns[at].responseMessages.length === 0 && <p className="text-muted">The bodies of this request were not kept.</p>}
            </>
          ) : details[at]?.isError ? (
            <p className="text-err">This request could not be loaded.</p>
          ) : (
            <Skeleton className="h-16 w-full" />
          )}
        </li>
      ))}
      {inOrder.length > shown && (
        <Button onClick={() => setShown(shown + STEP)}>
          Show the next {Math.min(STEP, inOrder.length - shown)} of {inOrder.length - shown} requests
        </Button>
      )}
    </ol>
  )
}
