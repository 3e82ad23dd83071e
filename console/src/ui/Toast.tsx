import { CircleAlert, CircleCheck, TriangleAlert, X } from 'lucide-react'
import { useEffect, useSyncExternalStore } from 'react'
import { asApiError } from '@/api/error'
import { Button } from './Button'

interface Message {
  id: number
  text: string
  tone: keyof typeof ICONS
}

const ICONS = {
  ok: { Icon: CircleCheck, color: 'text-ok' },
  warn: { Icon: TriangleAlert, color: 'text-warn' },
  err: { Icon: CircleAlert, color: 'text-err' },
}
const DISMISS_AFTER_MS = 5000
let next = 0
let messages: readonly Message[] = []
const listeners = new Set<() => void>()

function set(change: readonly Message[]): void {
  messages = change
  for (const listener of listeners) listener()
}

/** Shows a success toast. */
export function toast(text: string): void {
  show(text, 'ok')
}

/** Shows what the user has to do next. It stays until dismissed. */
export function toastWarning(text: string): void {
  show(text, 'warn')
}

/** Shows an error toast, for errors without a place in the page. */
export function toastError(error: unknown): void {
  show(asApiError(error).message, 'err')
}

function show(text: string, tone: Message['tone']): void {
  set([...messages.slice(-2), { id: next++, text, tone }])
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => messages,
  )
  return (
    <div className="pointer-events-none fixed inset-x-3 bottom-3 z-70 flex flex-col items-end gap-2" role="status" aria-live="polite">
      {shown.map((message) => (
        <Toast key={message.id} message={message} />
      ))}
    </div>
  )
}

function Toast({ message }: { message: Message }) {
  const close = () => set(messages.filter((other) => other.id !== message.id))
  useEffect(() => {
    // Errors and warnings stay until dismissed.
    if (message.tone !== 'ok') return
    const timer = setTimeout(close, DISMISS_AFTER_MS)
    return () => clearTimeout(timer)
  })
  const { Icon, color } = ICONS[message.tone]
  return (
    <div className="pointer-events-auto flex max-w-[420px] items-center gap-2 rounded-md border border-line bg-raised py-1.5 pr-1.5 pl-3 shadow-float">
      <Icon size={16} className={`shrink-0 ${color}`} aria-hidden />
      <span className="min-w-0 flex-1 break-words">{message.text}</span>
      <Button kind="ghost" size="sm" square aria-label="Dismiss" icon={<X size={14} aria-hidden />} onClick={close} />
    </div>
  )
}
