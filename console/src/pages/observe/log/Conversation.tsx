import { useMemo, useState, type ReactNode } from 'react'
import { parseResponse, parseRequest } from '@/lib/conversation'
import { isFailed } from '@/lib/failure'
import { plural } from '@/lib/format'
import { Badge, Button } from '@/ui'
import { Json } from '@/ui/Json'
import type { LogDetail } from './copyAs'
import { MessageView } from './MessageView'

/** Conversations with more messages collapse the older ones. */
const MAX_VISIBLE_MESSAGES = 6

/** The conversation of a request in any provider format. */
export function Conversation({ log }: { log: LogDetail }) {
  const requestMessages = useMemo(() => parseRequest(log.request), [log.request])
  const answer = useMemo(() => parseResponse(log.response), [log.response])
  const [all, setAll] = useState(false)
  const [markdown, setMarkdown] = useState(false)
  const system = requestMessages?.filter((message) => message.role === 'system') ?? []
  const turns = requestMessages?.filter((message) => message.role !== 'system') ?? []
  const hidden = all ? 0 : Math.max(0, turns.length - MAX_VISIBLE_MESSAGES)
  return (
    <div className="flex flex-col gap-3">
      <div className="flex items-center gap-2">
        <span className="flex-1 text-xs text-muted">{plural(turns.length + (answer?.messages.length ?? 0), 'message')}</span>
        <Button size="sm" kind="ghost" aria-pressed={markdown} onClick={() => setMarkdown(!markdown)}>
          {markdown ? 'Plain text' : 'Markdown'}
        </Button>
      </div>
      {system.map((message, at) => (
        <MessageView key={`system-${at}`} message={message} markdown={markdown} folded />
      ))}
      {hidden > 0 && (
        <Button size="sm" kind="ghost" onClick={() => setAll(true)}>
          Show {hidden} earlier messages
        </Button>
      )}
      {turns.slice(hidden).map((message, at) => (
        <MessageView key={hidden + at} message={message} markdown={markdown} />
      ))}
      {!requestMessages && <Missing what="request" stored={log.request_stored} body={log.request} />}
      {answer?.messages.map((message, at) => (
        <MessageView key={`answer-${at}`} message={message} markdown={markdown} isResponse />
      ))}
      {answer?.error && !isFailed(log) && (
        <p className="rounded-sm border border-line bg-err-soft px-3 py-2 break-words whitespace-pre-wrap text-err">{answer.error}</p>
      )}
      {answer?.finishReason && (
        <p className="text-xs text-muted">
          Finished: <Badge>{answer.finishReason}</Badge>
        </p>
      )}
      {!answer && !isFailed(log) && <Missing what="response" stored={log.response_stored} body={log.response} />}
    </div>
  )
}

/** Explains why there is no conversation, or shows the raw body. */
function Missing({ what, stored, body }: { what: 'request' | 'response'; stored: LogDetail['request_stored']; body: unknown }): ReactNode {
  if (stored === 'off') {
    return (
      <p className="card px-3 py-2 text-muted">
        The {what} was not kept: the organization does not store bodies, or the request had the header <code>X-Gateway-Log: metadata</code>.
      </p>
    )
  }
  if (body === null || body === '') return <p className="card px-3 py-2 text-muted">The {what} had no body.</p>
  return (
    <div className="flex flex-col gap-1">
      <p className="text-xs text-muted">
        {stored === 'truncated' ? `The ${what} was longer than 256 KiB; this is its beginning.` : `This ${what} is not a conversation.`}
      </p>
      <Json value={body} label={what === 'request' ? 'Request' : 'Response'} />
    </div>
  )
}
