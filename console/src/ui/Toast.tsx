import { CircleAlert, CircleCheck, X } from 'lucide-react'
import { useEffect, useSyncExternalStore } from 'react'
import { asApiError } from '@/api/error'
import { Button } from './Button'

interface Message {
  id: number
  text: string
  failed: boolean
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
  set([...messages.slice(-2), { id: next++, text, failed: false }])
}

/** Shows an error toast, for errors without a place in the page. */
export function toastError(error: unknown): void {
  set([...messages.slice(-2), { id: next++, text: asApiError(error).message, failed: true }])
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
    // Error toasts stay until dismissed.
    if (message.failed) return
    const timer = setTimeout(close, DISMISS_AFTER_MS)
    return () => clearTimeout(timer)
  })
  const Icon = message.failed ? CircleAlert : CircleCheck
  return (
    <div className="pointer-events-auto flex max-w-[420px] items-center gap-2 rounded-md border border-line bg-raised py-1.5 pr-1.5 pl-3 shadow-float">
      <Icon size={16} className={message.failed ? 'shrink-0 text-err' : 'shrink-0 text-ok'} aria-hidden />
      <span className="min-w-0 flex-1 break-words">{message.text}</span>
      <Button kind="ghost" size="sm" square aria-label="Dismiss" icon={<X size={14} aria-hidden />} onClick={close} />
    </div>
  )
}
