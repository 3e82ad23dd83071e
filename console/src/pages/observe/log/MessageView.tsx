import { ChevronRight, FileText, ImageIcon, Volume2, Wrench } from 'lucide-react'
import { lazy, Suspense, useState, type ReactNode } from 'react'
import type { Message, Part } from '@/lib/conversation'
import { cx } from '@/lib/cx'
import { Json } from '@/ui/Json'
import { Marked } from '@/ui/Marked'

const Markdown = lazy(() => import('@/ui/Markdown'))

/** Longer texts are clamped until expanded. */
const MAX_COLLAPSED_CHARS = 1200

interface MessageViewProps {
  message: Message
  markdown: boolean
  /** True for the response of this request, false for a message of the request. */
  isResponse?: boolean
  /** Initially collapsed, for long system prompts. */
  folded?: boolean
}

export function MessageView({ message, markdown, isResponse, folded }: MessageViewProps) {
  const body = (
    <div className="flex flex-col gap-2 px-3 pb-2.5">
      {message.parts.map((part, at) => (
        <PartView key={at} part={part} markdown={markdown} />
      ))}
    </div>
  )
  const frame = cx('card min-w-0', isResponse && 'border-l-2 border-l-accent', message.role === 'user' && 'bg-sunken')
  if (folded) {
    return (
      <details className={cx(frame, 'group')}>
        <summary className="flex min-h-9 items-center gap-1.5 px-3 text-xs text-muted">
          <ChevronRight size={14} className="group-open:rotate-90" aria-hidden /> {message.role}
        </summary>
        {body}
      </details>
    )
  }
  return (
    <article className={frame}>
      <h3 className="px-3 pt-2 pb-1 text-xs font-medium text-muted">{isResponse ? 'response' : message.role}</h3>
      {body}
    </article>
  )
}

function PartView({ part, markdown }: { part: Part; markdown: boolean }): ReactNode {
  switch (part.kind) {
    case 'text':
      return <Words text={part.text} markdown={markdown} />
    case 'refusal':
      return (
        <Labelled name="Refusal">
          <Words text={part.text} markdown={false} />
        </Labelled>
      )
    case 'reasoning':
      return (
        <details>
          <summary className="text-xs text-muted">Reasoning</summary>
          <div className="border-l-2 border-line pl-3 text-muted">
            <Words text={part.text} markdown={markdown} />
          </div>
        </details>
      )
    case 'image':
      // Render inline images only. Loading a remote URL would reveal the viewer to a third party.
      return part.url?.startsWith('data:image/') ? (
        <img src={part.url} alt="Sent with the message" className="max-h-64 max-w-full self-start rounded-sm border border-line" />
      ) : (
        <Attachment icon={<ImageIcon size={14} aria-hidden />} text={part.url ?? part.mime ?? 'Image'} />
      )
    case 'audio':
      return <Attachment icon={<Volume2 size={14} aria-hidden />} text={part.transcript ?? 'Audio'} />
    case 'file':
      return <Attachment icon={<FileText size={14} aria-hidden />} text={part.name ?? part.mime ?? 'File'} />
    case 'tool_call':
      return (
        <Labelled name={<Tool name={part.name} what="call" />}>
          <Json value={part.arguments} label={`Arguments of ${part.name}`} />
        </Labelled>
      )
    case 'tool_result':
      return (
        <Labelled name={<Tool name={part.name ?? part.id ?? 'tool'} what={part.failed ? 'failed' : 'result'} />}>
          <div className="flex flex-col gap-2">
            {part.content.map((inner, at) => (
              <PartView key={at} part={inner} markdown={markdown} />
            ))}
          </div>
        </Labelled>
      )
    case 'other':
      return <Json value={part.value} label="Part" />
  }
}

function Words({ text, markdown }: { text: string; markdown: boolean }) {
  const [all, setAll] = useState(false)
  const cut = !all && text.length > MAX_COLLAPSED_CHARS
  const shown = cut ? `${text.slice(0, MAX_COLLAPSED_CHARS)}…` : text
  return (
    <div className="min-w-0">
      {markdown ? (
        <Suspense fallback={<p className="break-words whitespace-pre-wrap">{shown}</p>}>
          <Markdown text={shown} />
        </Suspense>
      ) : (
        <p className="break-words whitespace-pre-wrap">
          <Marked text={shown} />
        </p>
      )}
      {cut && (
        <button type="button" className="mt-1 min-h-6 text-xs text-accent underline" onClick={() => setAll(true)}>
          Show all {text.length} characters
        </button>
      )}
    </div>
  )
}

const Labelled = ({ name, children }: { name: ReactNode; children: ReactNode }) => (
  <div>
    <div className="mb-1 text-xs text-muted">{name}</div>
    {children}
  </div>
)

const Tool = ({ name, what }: { name: string; what: string }) => (
  <span className="inline-flex items-center gap-1.5">
    <Wrench size={12} aria-hidden /> <code>{name}</code> {what}
  </span>
)

const Attachment = ({ icon, text }: { icon: ReactNode; text: string }) => (
  <span className="inline-flex min-w-0 items-center gap-1.5 text-muted">
    {icon} <span className="name truncate font-mono text-xs">{text}</span>
  </span>
)
