import { useMemo, useState } from 'react'
import { Button } from './Button'
import { CopyButton } from './CopyButton'
import { JsonNode } from './JsonNode'
import { Marked, SearchHits, useSearchHits } from './Marked'

/** Longer texts are cut; copy returns all of it. */
const MAX_CHARS = 200_000
/** Deeper levels are folded at first. */
const OPEN_DEPTH = 4

/**
 * Displays a value as JSON with colours and foldable objects and lists, or text unchanged. `search` is marked wherever
 * it stands, also inside of words, and unfolds everything.
 */
export function Json({ value, label, search = '' }: { value: unknown; label: string; search?: string }) {
  const text = useMemo(() => (typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? 'null')), [value])
  const [fold, setFold] = useState<{ depth: number; version: number }>({ depth: OPEN_DEPTH, version: 0 })
  const words = useSearchHits()
  const isTree = typeof value === 'object' && value !== null && Object.keys(value).length > 0
  const needle = search.trim()
  const setDepth = (depth: number) => setFold({ depth, version: fold.version + 1 })
  const content = isTree ? (
    <JsonNode key={`${fold.version} ${needle}`} value={value} depth={0} openDepth={needle === '' ? fold.depth : Number.POSITIVE_INFINITY} needle={needle} isLast />
  ) : (
    <PlainText text={text} needle={needle} />
  )
  return (
    <div className="relative rounded-md border border-line bg-sunken">
      <pre className="max-h-[60vh] overflow-auto p-3 pr-24 leading-relaxed break-words whitespace-pre-wrap" role="region" tabIndex={0} aria-label={label}>
        <SearchHits words={needle === '' ? words : []}>{content}</SearchHits>
      </pre>
      <div className="absolute top-1.5 right-3 flex gap-1 rounded-sm bg-sunken">
        {isTree && needle === '' && (
          <Button kind="ghost" size="sm" onClick={() => setDepth(fold.depth > 1 ? 1 : Number.POSITIVE_INFINITY)}>
            {fold.depth > 1 ? 'Fold' : 'Unfold'}
          </Button>
        )}
        <CopyButton value={text} label={`Copy ${label.toLowerCase()}`} />
      </div>
    </div>
  )
}

function PlainText({ text, needle }: { text: string; needle: string }) {
  const shown = text.length > MAX_CHARS ? text.slice(0, MAX_CHARS) : text
  return (
    <>
      {needle === '' ? <Marked text={shown} /> : <Found text={shown} needle={needle} />}
      {text.length > MAX_CHARS && `\n… ${text.length - MAX_CHARS} more characters`}
    </>
  )
}

/** Marks a text wherever it stands. */
export function Found({ text, needle }: { text: string; needle: string }) {
  const parts = useMemo(() => split(text, needle), [text, needle])
  return <>{parts.map((part, at) => (at % 2 === 1 ? <mark key={at}>{part}</mark> : part))}</>
}

/** Splits text into alternating unmatched and matched parts. */
function split(text: string, search: string): string[] {
  const needle = search.toLowerCase()
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
