import { Plus, X } from 'lucide-react'
import { cx } from '@/lib/cx'
import { Button, Field, Input, Select, TextArea } from '@/ui'
import type { ToolCall } from './setup'

/** Tool calls of an answer. */
export function ToolCallList({ label, calls, className }: { label: string; calls: readonly ToolCall[]; className?: string | undefined }) {
  return (
    <ul className={cx('flex flex-col gap-2', className)} aria-label={label}>
      {calls.map((call, at) => (
        <li key={at} className="rounded-sm border border-line bg-sunken px-2 py-1.5">
          <p className="flex flex-wrap items-baseline gap-x-2">
            <span className="text-xs text-muted">Tool call</span>
            <code className="font-semibold break-words">{call.function.name}</code>
          </p>
          <pre className="mt-1 overflow-x-auto text-xs whitespace-pre-wrap break-words">{formatArguments(call.function.arguments)}</pre>
        </li>
      ))}
    </ul>
  )
}

/** Edits the tool calls of an assistant message. `taken` are the ids of all calls of the conversation. */
export function ToolCallEditor({ number, calls, taken, onChange }: { number: number; calls: readonly ToolCall[]; taken: readonly string[]; onChange(calls: ToolCall[]): void }) {
  const change = (at: number, part: Partial<ToolCall['function']>) => onChange(calls.map((call, index) => (index === at ? { ...call, function: { ...call.function, ...part } } : call)))
  return (
    <div className="flex flex-col gap-2">
      {calls.map((call, at) => {
        const name = `call ${at + 1} of message ${number}`
        return (
          <div key={at} role="group" aria-label={`Tool ${name}`} className="flex flex-col gap-1 rounded-sm border border-line bg-sunken p-2">
            <div className="flex items-center gap-1">
              <span className="shrink-0 text-xs text-muted">calls</span>
              <Field label={`Tool of ${name}`} quiet className="min-w-0 flex-1">
                <Input mono value={call.function.name} placeholder="Name of the tool" onChange={(event) => change(at, { name: event.target.value })} />
              </Field>
              <Button size="sm" kind="ghost" square aria-label={`Remove ${name}`} icon={<X size={14} aria-hidden />} onClick={() => onChange(calls.toSpliced(at, 1))} />
            </div>
            <Field label={`Arguments of ${name}`} quiet error={isJson(call.function.arguments) ? null : 'The arguments are not valid JSON'}>
              <TextArea mono rows={Math.min(8, call.function.arguments.split('\n').length)} className="!min-h-[30px]" value={call.function.arguments} placeholder="{}" onChange={(event) => change(at, { arguments: event.target.value })} />
            </Field>
          </div>
        )
      })}
      <div>
        <Button size="sm" kind="ghost" icon={<Plus size={14} aria-hidden />} aria-label={`Add tool call to message ${number}`} onClick={() => onChange([...calls, newCall(taken)])}>
          Add tool call
        </Button>
      </div>
    </div>
  )
}

/** Selects the call that a tool message answers. An id that no message has stays. */
export function AnsweredCall({ number, id, calls, onChange }: { number: number; id: string | undefined; calls: readonly ToolCall[]; onChange(id: string): void }) {
  const options = calls.map((call) => ({ value: call.id, label: `${call.function.name} (${call.id})` }))
  const isKnown = calls.some((call) => call.id === id)
  const label = `Call that message ${number} answers`
  return (
    <Field label={label} quiet error={id && !isKnown ? 'No earlier message makes this call, or another one answers it' : null}>
      <Select className="font-mono text-xs" value={id ?? ''} onChange={(event) => onChange(event.target.value)} options={[...(id ? [] : [{ value: '', label: calls.length === 0 ? 'No earlier message calls a tool' : 'Choose the call' }]), ...(id && !isKnown ? [{ value: id, label: id }] : []), ...options]} />
    </Field>
  )
}

function newCall(taken: readonly string[]): ToolCall {
  const id = Array.from({ length: taken.length + 1 }, (_, at) => `call_${at + 1}`).find((one) => !taken.includes(one)) ?? 'call'
  return { id, type: 'function', function: { name: '', arguments: '{}' } }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return text.trim() === ''
  }
}

/** Arguments with line breaks, if they are JSON. */
function formatArguments(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text) as unknown, null, 2)
  } catch {
    return text
  }
}
