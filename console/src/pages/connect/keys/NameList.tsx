import { X } from 'lucide-react'
import { type KeyboardEvent, useId, useState } from 'react'
import { Field, Input } from '@/ui'

interface Props {
  label: string
  names: string[]
  suggestions: string[]
  placeholder: string
  onChange: (names: string[]) => void
}

/** Tag input: Enter, a comma or blur adds a name, the cross removes one. */
export function NameList({ label, names, suggestions, placeholder, onChange }: Props) {
  const [typed, setTyped] = useState('')
  const list = useId()
  const add = (text: string): void => {
    const fresh = text.split(/[\s,]+/).filter((name) => name !== '' && !names.includes(name))
    if (fresh.length > 0) onChange([...names, ...fresh])
    setTyped('')
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === 'Enter' && typed !== '') {
      event.preventDefault()
      add(typed)
    } else if (event.key === 'Backspace' && typed === '') onChange(names.slice(0, -1))
  }
  return (
    <div className="flex min-w-0 flex-col gap-1.5">
      <Field label={label}>
        <Input
          mono
          value={typed}
          list={list}
          placeholder={placeholder}
          onChange={(event) => {
            // A comma adds the name, and so does a datalist selection, which sets the whole value at once.
            if (event.target.value.includes(',') || suggestions.includes(event.target.value)) add(event.target.value)
            else setTyped(event.target.value)
          }}
          onBlur={() => add(typed)}
          onKeyDown={onKeyDown}
        />
      </Field>
      <datalist id={list}>
        {suggestions.filter((name) => !names.includes(name)).map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      {names.length > 0 && (
        <ul aria-label={`Chosen ${label.toLowerCase()}`} className="flex flex-wrap gap-1">
          {names.map((name) => (
            <li key={name} className="chip max-w-full font-mono">
              <span className="name truncate">{name}</span>
              <button type="button" aria-label={`Remove ${name}`} className="-mr-1.5 grid size-6 shrink-0 place-items-center rounded-full" onClick={() => onChange(names.filter((other) => other !== name))}>
                <X size={12} aria-hidden />
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
