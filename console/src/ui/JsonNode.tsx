import { useState, type ReactNode } from 'react'
import { Found } from './Json'
import { Marked } from './Marked'

/** Entries of a list or object that are shown at first, and characters of a text. */
const MAX_ENTRIES = 100
const MAX_TEXT = 20_000
const INDENT = '  '

interface JsonNodeProps {
  name?: string
  value: unknown
  depth: number
  /** Nodes above this depth are open at first. */
  openDepth: number
  needle: string
  isLast: boolean
}

/** One value of a JSON tree. */
export function JsonNode({ name, value, depth, openDepth, needle, isLast }: JsonNodeProps): ReactNode {
  const [open, setOpen] = useState(depth < openDepth)
  const [limit, setLimit] = useState(MAX_ENTRIES)
  const indent = INDENT.repeat(depth)
  const label = name === undefined ? null : <span className="text-accent">{`"${name}"`}: </span>
  const comma = isLast ? '' : ','
  if (typeof value !== 'object' || value === null) {
    return (
      <div>
        {indent}
        {label}
        <Scalar value={value} needle={needle} />
        {comma}
      </div>
    )
  }
  const isList = Array.isArray(value)
  const entries: [string | undefined, unknown][] = isList ? value.map((item: unknown) => [undefined, item]) : Object.entries(value)
  const [before, after] = isList ? ['[', ']'] : ['{', '}']
  if (entries.length === 0) {
    return (
      <div>
        {indent}
        {label}
        {before}
        {after}
        {comma}
      </div>
    )
  }
  return (
    <div>
      {indent}
      <button type="button" className="-ml-1 inline-block min-h-5 min-w-4 rounded-sm px-0.5 text-muted hover:bg-line hover:text-fg" aria-expanded={open} aria-label={`${open ? 'Fold' : 'Unfold'} ${name ?? (isList ? 'list' : 'object')}`} onClick={() => setOpen(!open)}>
        {open ? '▾' : '▸'}
      </button>
      {label}
      {before}
      {open ? (
        <>
          {entries.slice(0, limit).map(([key, item], at) => (
            <JsonNode key={key ?? at} {...(key !== undefined && { name: key })} value={item} depth={depth + 1} openDepth={openDepth} needle={needle} isLast={at === entries.length - 1} />
          ))}
          {entries.length > limit && (
            <div>
              {indent}
              {INDENT}
              <button type="button" className="text-accent underline" onClick={() => setLimit(limit + 10 * MAX_ENTRIES)}>
                {entries.length - limit} more
              </button>
            </div>
          )}
          {indent}
        </>
      ) : (
        <span className="text-muted">
          {' '}
          {entries.length} {isList ? (entries.length === 1 ? 'item' : 'items') : entries.length === 1 ? 'field' : 'fields'}{' '}
        </span>
      )}
      {after}
      {comma}
    </div>
  )
}

function Scalar({ value, needle }: { value: unknown; needle: string }): ReactNode {
  const [all, setAll] = useState(false)
  if (typeof value !== 'string') return <span className={typeof value === 'number' ? 'text-warn' : 'text-muted'}>{needle === '' ? String(value) : <Found text={String(value)} needle={needle} />}</span>
  const quoted = JSON.stringify(value)
  const shown = all || quoted.length <= MAX_TEXT ? quoted : quoted.slice(0, MAX_TEXT)
  return (
    <span className="text-ok">
      {needle === '' ? <Marked text={shown} /> : <Found text={shown} needle={needle} />}
      {shown.length < quoted.length && (
        <button type="button" className="text-accent underline" onClick={() => setAll(true)}>
          … {quoted.length - shown.length} more characters
        </button>
      )}
    </span>
  )
}
