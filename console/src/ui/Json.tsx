import { useMemo } from 'react'
import { CopyButton } from './CopyButton'

/** Displays a value as indented JSON, or text unchanged. Long values are truncated; copy returns the full text. */
const MAX_CHARS = 200_000

export function Json({ value, label, search = '' }: { value: unknown; label: string; search?: string }) {
  const text = useMemo(() => (typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? 'null')), [value])
  const shown = text.length > MAX_CHARS ? text.slice(0, MAX_CHARS) : text
  const parts = useMemo(() => split(shown, search), [shown, search])
  return (
    <div className="relative rounded-md border border-line bg-sunken">
      <pre className="max-h-[60vh] overflow-auto p-3 pr-12 leading-relaxed break-words whitespace-pre-wrap" role="region" tabIndex={0} aria-label={label}>
        {parts.map((part, at) => (at % 2 === 1 ? <mark key={at}>{part}</mark> : part))}
        {text.length > MAX_CHARS && `\n… ${text.length - MAX_CHARS} more characters`}
      </pre>
      <div className="absolute top-1.5 right-3 rounded-sm bg-sunken">
        <CopyButton value={text} label={`Copy ${label.toLowerCase()}`} />
      </div>
    </div>
  )
}

/** Splits text into alternating unmatched and matched parts. */
function split(text: string, search: string): string[] {
  const needle = search.trim().toLowerCase()
  if (needle === '') return [text]
  const parts: string[] = []
  const lower = text.toLowerCase()
  let from = 0
  for (let at = lower.indexOf(needle); at >= 0 && parts.length < 2000; at = lower.indexOf(needle, from)) {
    parts.push(text.slice(from, at), text.slice(at, at + needle.length))
    from = at + needle.length
  }
  return [...parts, text.slice(from)]
}
