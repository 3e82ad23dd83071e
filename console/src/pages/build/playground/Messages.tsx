import { ArrowDown, ArrowUp, ImagePlus, Plus, X } from 'lucide-react'
import { useEffect, useEffectEvent, useRef } from 'react'
import { readImage } from '@/lib/images'
import { Button, Select, TextArea, toastError } from '@/ui'
import { openCalls, ROLES, type Message } from './setup'
import { AnsweredCall, ToolCallEditor } from './ToolCalls'

const MAX_IMAGES = 8

interface MessagesProps {
  messages: Message[]
  onChange(messages: Message[]): void
  /** Index of the message that gets the focus, or null. */
  edited: number | null
  onFocused(): void
}

/** The messages, with images, tool calls and tool results. */
export function Messages({ messages, onChange, edited, onFocused }: MessagesProps) {
  const list = useRef<HTMLOListElement>(null)
  const focused = useEffectEvent(onFocused)
  useEffect(() => {
    if (edited === null) return
    list.current?.children[edited]?.querySelector('textarea')?.focus()
    focused()
  }, [edited])
  const taken = messages.flatMap((message) => message.toolCalls?.map((call) => call.id) ?? [])
  const change = (at: number, part: Partial<Message>) => onChange(messages.map((message, index) => (index === at ? { ...message, ...part } : message)))
  const move = (at: number, by: number) => onChange(messages.toSpliced(at, 1).toSpliced(at + by, 0, ...messages.slice(at, at + 1)))
  return (
    <div className="flex flex-col gap-3">
      <ol ref={list} className="flex flex-col gap-3" aria-label="Messages">
        {messages.map((message, at) => (
          <li key={at} className="flex flex-col gap-1">
            <div className="flex items-center gap-1">
              <Select className="!w-28" aria-label={`Role of message ${at + 1}`} value={message.role} onChange={(event) => change(at, { role: ROLES.find((role) => role === event.target.value) ?? 'user' })} options={ROLES} />
              <span className="flex-1" />
              {message.role === 'user' && <AddImage number={at + 1} full={(message.images?.length ?? 0) >= MAX_IMAGES} onAdd={(url) => change(at, { images: [...(message.images ?? []), url] })} />}
              <Button size="sm" kind="ghost" square aria-label={`Move message ${at + 1} up`} blocked={at === 0 && 'It is the first'} icon={<ArrowUp size={14} aria-hidden />} onClick={() => move(at, -1)} />
              <Button size="sm" kind="ghost" square aria-label={`Move message ${at + 1} down`} blocked={at === messages.length - 1 && 'It is the last'} icon={<ArrowDown size={14} aria-hidden />} onClick={() => move(at, 1)} />
              <Button size="sm" kind="ghost" square aria-label={`Remove message ${at + 1}`} blocked={messages.length === 1 && 'At least one message is needed'} icon={<X size={14} aria-hidden />} onClick={() => onChange(messages.toSpliced(at, 1))} />
            </div>
            {message.role === 'tool' && <AnsweredCall number={at + 1} id={message.toolCallId} calls={openCalls(messages, at)} onChange={(toolCallId) => change(at, { toolCallId })} />}
            <TextArea aria-label={`Message ${at + 1}`} className={message.toolCalls?.length ? '!min-h-[30px]' : undefined} rows={Math.min(12, Math.max(message.toolCalls?.length ? 1 : 3, message.content.split('\n').length))} value={message.content} placeholder={message.role === 'system' ? 'How the model should behave' : message.role === 'tool' ? 'What the tool returned' : 'Message'} onChange={(event) => change(at, { content: event.target.value })} />
            {message.role === 'user' && message.images && message.images.length > 0 && <Images number={at + 1} images={message.images} onChange={(images) => change(at, { images })} />}
            {message.role === 'assistant' && <ToolCallEditor number={at + 1} calls={message.toolCalls ?? []} taken={taken} onChange={(toolCalls) => change(at, { toolCalls })} />}
          </li>
        ))}
      </ol>
      <div>
        <Button size="sm" icon={<Plus size={14} aria-hidden />} onClick={() => onChange([...messages, { role: messages.at(-1)?.role === 'user' ? 'assistant' : 'user', content: '' }])}>
          Add message
        </Button>
      </div>
    </div>
  )
}

function AddImage({ number, full, onAdd }: { number: number; full: boolean; onAdd(url: string): void }) {
  const input = useRef<HTMLInputElement>(null)
  return (
    <>
      <input
        ref={input}
        type="file"
        hidden
        accept="image/png,image/jpeg,image/webp,image/gif"
        aria-label={`Image file for message ${number}`}
        onChange={(event) => {
          const [file] = event.target.files ?? []
          event.target.value = ''
          if (file) readImage(file).then(onAdd, toastError)
        }}
      />
      <Button size="sm" kind="ghost" square aria-label={`Add an image to message ${number}`} title="Add an image" blocked={full && `At most ${MAX_IMAGES} images`} icon={<ImagePlus size={14} aria-hidden />} onClick={() => input.current?.click()} />
    </>
  )
}

function Images({ number, images, onChange }: { number: number; images: readonly string[]; onChange(images: string[]): void }) {
  return (
    <ul className="flex flex-wrap gap-2" aria-label={`Images of message ${number}`}>
      {images.map((url, at) => (
        <li key={at} className="relative max-w-full rounded-sm border border-line bg-sunken p-1">
          {/* Remote images are named, not loaded: the page makes no requests to other hosts. */}
          {url.startsWith('data:image/') ? <img src={url} alt={`${at + 1} of message ${number}`} className="h-20 max-w-40 object-contain" /> : <code className="block max-w-56 truncate py-1 pr-7" title={url}>{url}</code>}
          <Button size="sm" square className="!absolute top-0.5 right-0.5" aria-label={`Remove image ${at + 1} of message ${number}`} icon={<X size={14} aria-hidden />} onClick={() => onChange(images.toSpliced(at, 1))} />
        </li>
      ))}
    </ul>
  )
}
