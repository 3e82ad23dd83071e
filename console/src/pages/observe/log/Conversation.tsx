import { useMemo, useState, type ReactNode } from 'react'
import { readAnswer, requestMessages } from '@/lib/conversation'
import { Badge, Button } from '@/ui'
import { Json } from '@/ui/Json'
import type { LogDetail } from './copyAs'
import { MessageView } from './MessageView'

/** More turns than this, and the older ones are folded away. */
const SHOWN = 6

/** What was said, whatever the provider's format. */
export function Conversation({ log }: { log: LogDetail }) {
  const asked = useMemo(() => requestMessages(log.request), [log.request])
  const answer = useMemo(() => readAnswer(log.response), [log.response])
  const [all, setAll] = useState(false)
  const [markdown, setMarkdown] = useState(false)
  const system = asked?.filter((message) => message.role === 'system') ?? []
  const turns = asked?.filter((message) => message.role !== 'system') ?? []
  const hidden = all ? 0 : Math.max(0, turns.length - SHOWN)
  return (
    <div className="flex flex-col gap-3">
      <div className="flex items-center gap-2">
        <span className="flex-1 text-xs text-muted">{turns.length + (answer?.messages.length ?? 0)} messages</span>
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
      {!asked && <Missing what="request" stored={log.request_stored} body={log.request} />}
      {answer?.messages.map((message, at) => (
        <MessageView key={`answer-${at}`} message={message} markdown={markdown} answer />
      ))}
      {answer?.error && (
        <p className="rounded-sm border border-line bg-err-soft px-3 py-2 break-words whitespace-pre-wrap text-err">{answer.error}</p>
      )}
      {answer?.finish && (
        <p className="text-xs text-muted">
          Finished: <Badge>{answer.finish}</Badge>
        </p>
      )}
      {!answer && <Missing what="answer" stored={log.response_stored} body={log.response} />}
    </div>
  )
}

/** Why there is nothing to read, or what there is instead. */
function Missing({ what, stored, body }: { what: 'request' | 'answer'; stored: LogDetail['request_stored']; body: unknown }): ReactNode {
  if (stored === 'off') {
    return (
      <p className="card px-3 py-2 text-muted">
        The {what} was not kept: bodies are switched off for this organization, or the request said <code>X-Gateway-Log: metadata</code>.
      </p>
    )
  }
  if (body === null || body === '') return <p className="card px-3 py-2 text-muted">The {what} had no body.</p>
  return (
    <div className="flex flex-col gap-1">
      <p className="text-xs text-muted">
        {stored === 'truncated' ? `The ${what} was longer than 256 KiB; this is its beginning.` : `This ${what} is no conversation.`}
      </p>
      <Json value={body} label={what === 'request' ? 'Request' : 'Answer'} />
    </div>
  )
}
