import { Plus, X } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { Button } from './Button'
import { Field, Input, Select } from './Field'
import { Popover } from './Menu'

export interface Filter {
  name: string
  label: string
  value: string | undefined
  /** A closed set is rendered as a select, an open one as an input with suggestions. */
  options?: readonly { value: string; label: string }[]
  closed?: boolean
}

interface ChipsProps {
  filters: readonly Filter[]
  onChange(name: string, value: string | undefined): void
}

/** Active filters as removable chips. */
export function FilterChips({ filters, onChange }: ChipsProps) {
  return (
    <>
      {filters
        .filter((filter) => filter.value)
        .map((filter) => (
          <span key={filter.name} className="chip border-accent bg-accent-soft">
            <span className="text-muted">{filter.label}</span>
            <span className="name max-w-48 truncate font-medium">{filter.options?.find((option) => option.value === filter.value)?.label ?? filter.value}</span>
            <button type="button" className="-mr-1.5 grid size-6 place-items-center rounded-full" aria-label={`Remove filter ${filter.label}`} onClick={() => onChange(filter.name, undefined)}>
              <X size={12} aria-hidden />
            </button>
          </span>
        ))}
    </>
  )
}

export function FilterMenu({ filters, onChange, children }: ChipsProps & { children?: ReactNode }) {
  const [open, setOpen] = useState(false)
  return (
    <Popover
      label="Filters"
      open={open}
      onOpenChange={setOpen}
      trigger={
        <Button icon={<Plus size={14} aria-hidden />} size="md">
          Filter
        </Button>
      }
    >
      <form
        className="grid w-[min(440px,calc(100vw-32px))] grid-cols-2 gap-3 p-2"
        onSubmit={(event) => {
          event.preventDefault()
          setOpen(false)
        }}
      >
        {filters.map((filter) => (
          <Field key={filter.name} label={filter.label}>
            {filter.closed ? (
              <Select value={filter.value ?? ''} onChange={(event) => onChange(filter.name, event.target.value || undefined)} options={[{ value: '', label: 'Any' }, ...(filter.options ?? [])]} />
            ) : (
              <LazyInput filter={filter} onChange={onChange} />
            )}
          </Field>
        ))}
        {children}
        <div className="col-span-2 flex justify-end">
          <Button size="sm" type="submit">
            Done
          </Button>
        </div>
      </form>
    </Popover>
  )
}

/** Commits on blur or Enter, so that typing does not send a request per keystroke. */
function LazyInput({ filter, onChange }: { filter: Filter; onChange: ChipsProps['onChange'] }) {
  const list = `filter-${filter.name}`
  return (
    <>
      <Input
        mono
        key={filter.value ?? ''}
        defaultValue={filter.value ?? ''}
        list={filter.options ? list : undefined}
        onBlur={(event) => onChange(filter.name, event.target.value.trim() || undefined)}
        onKeyDown={(event) => event.key === 'Enter' && onChange(filter.name, event.currentTarget.value.trim() || undefined)}
      />
      {filter.options && (
        <datalist id={list}>
          {filter.options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.label}
            </option>
          ))}
        </datalist>
      )}
    </>
  )
}
