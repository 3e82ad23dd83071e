import { Search, X } from 'lucide-react'
import { useEffect, useId, useRef, useState, type KeyboardEvent, type Ref } from 'react'
import type { ApiError } from '@/api/error'
import { cx } from '@/lib/cx'
import { completionAt } from '@/lib/query'
import { QueryProblem } from './QueryProblem'
import { useCompletion, type Suggestion } from './useCompletion'

interface QueryBoxProps {
  value: string
  onChange(query: string): void
  /** The server's error on the current query. */
  error: ApiError | null
  inputRef: Ref<HTMLInputElement>
  placeholder?: string
}

/** The query with completion of fields and values. Enter runs it; an error points at the character. */
export function QueryBox({ value, onChange, error, inputRef, placeholder = 'Search messages, or filter: status:error latency:>2s   /' }: QueryBoxProps) {
  const id = useId()
  const [text, setText] = useState(value)
  const [caret, setCaret] = useState<number | null>(null)
  const [chosen, setChosen] = useState(-1)
  const [dismissed, setDismissed] = useState(false)
  const box = useRef<HTMLInputElement | null>(null)
  // A click on a facet, a saved view or the back button changes the query from outside.
  useEffect(() => setText(value), [value])

  const completion = caret === null || dismissed ? null : completionAt(text, caret)
  const suggestions = useCompletion(completion)
  const open = completion !== null && suggestions.length > 0
  const active = open ? suggestions[chosen] : undefined

  const type = (next: string, at: number) => {
    setText(next)
    setCaret(at)
    setChosen(-1)
    setDismissed(false)
  }
  const submit = (next = text) => {
    setDismissed(true)
    onChange(next.trim())
  }
  const accept = (suggestion: Suggestion) => {
    if (!completion) return
    const next = text.slice(0, completion.from) + suggestion.insert + text.slice(completion.to)
    const at = completion.from + suggestion.insert.length
    type(next, at)
    requestAnimationFrame(() => {
      box.current?.focus()
      box.current?.setSelectionRange(at, at)
    })
  }
  const keys = (event: KeyboardEvent) => {
    if (event.key === 'Enter') {
      event.preventDefault()
      if (active) accept(active)
      else submit()
    } else if (event.key === 'Tab' && open && !event.shiftKey && chosen >= 0 && active) {
      event.preventDefault()
      accept(active)
    } else if (event.key === 'Escape') {
      event.stopPropagation()
      if (open) setDismissed(true)
      else box.current?.blur()
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault()
      if (!open) setDismissed(false)
      else setChosen((chosen + (event.key === 'ArrowDown' ? 1 : -1) + suggestions.length + (chosen < 0 && event.key === 'ArrowUp' ? 1 : 0)) % suggestions.length)
    }
  }
  const problem = error?.fields['query'] !== undefined && text.trim() === value ? error : null
  return (
    <div className="relative min-w-0">
      <div role="search" className="relative flex items-center">
        <Search size={14} className="pointer-events-none absolute left-2.5 text-muted" aria-hidden />
        <input
          ref={(element) => {
            box.current = element
            if (typeof inputRef === 'function') inputRef(element)
            else if (inputRef) inputRef.current = element
          }}
          className="input pr-9 pl-8 font-mono"
          role="combobox"
          aria-label="Query"
          aria-expanded={open}
          aria-controls={`${id}-list`}
          aria-autocomplete="list"
          aria-activedescendant={active ? `${id}-${chosen}` : undefined}
          aria-invalid={problem !== null}
          aria-describedby={problem ? `${id}-error` : undefined}
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          maxLength={2048}
          placeholder={placeholder}
          value={text}
          onChange={(event) => type(event.target.value, event.target.selectionStart ?? event.target.value.length)}
          // The event may arrive after the focus has left.
          onSelect={(event) => document.activeElement === event.currentTarget && setCaret(event.currentTarget.selectionStart)}
          onFocus={() => setDismissed(false)}
          onBlur={() => {
            setCaret(null)
            if (text.trim() !== value) onChange(text.trim())
          }}
          onKeyDown={keys}
        />
        {text !== '' && (
          <button
            type="button"
            className="absolute right-1.5 grid size-6 place-items-center rounded-sm text-muted hover:text-fg"
            aria-label="Clear the query"
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => {
              type('', 0)
              submit('')
            }}
          >
            <X size={14} aria-hidden />
          </button>
        )}
      </div>
      <ul id={`${id}-list`} role="listbox" aria-label="Suggestions" hidden={!open} className="popup absolute top-full left-0 z-30 mt-1 w-full max-w-[560px]">
        {suggestions.map((suggestion, at) => (
          <li
            key={suggestion.label}
            id={`${id}-${at}`}
            role="option"
            aria-selected={at === chosen}
            className={cx('popup-item', at === chosen && 'bg-accent-soft')}
            // The input keeps the focus.
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => accept(suggestion)}
          >
            <code className="shrink-0">{suggestion.label}</code>
            {suggestion.about && <span className="min-w-0 flex-1 truncate text-right text-xs text-muted">{suggestion.about}</span>}
          </li>
        ))}
      </ul>
      {problem && !open && <QueryProblem id={`${id}-error`} query={value} error={problem} onFix={(fixed) => submit(fixed)} onShow={(start, end) => {
        box.current?.focus()
        box.current?.setSelectionRange(start, end)
      }} />}
    </div>
  )
}
