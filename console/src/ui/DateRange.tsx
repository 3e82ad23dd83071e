import { CalendarClock } from 'lucide-react'
import { useState } from 'react'
import { time, zoneName, type Zone } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { CALENDAR, DEFAULT_SPAN, rangeName, SPANS, type RangeSearch } from '@/lib/range'
import { Button } from './Button'
import { Field, Input } from './Field'
import { Popover } from './Menu'

interface DateRangeProps {
  value: RangeSearch
  onChange(value: RangeSearch): void
}

/** Time range picker: a relative span or two instants in the displayed time zone. */
export function DateRange({ value, onChange }: DateRangeProps) {
  const { zone } = usePrefs()
  const [open, setOpen] = useState(false)
  const [error, setError] = useState<string | null>(null)
  const utc = zone === 'utc'
  const fixed = value.from && value.to
  const choose = (next: RangeSearch) => {
    onChange(next)
    setError(null)
    setOpen(false)
  }
  return (
    <Popover
      label="Time range"
      align="end"
      open={open}
      onOpenChange={setOpen}
      trigger={
        <Button icon={<CalendarClock size={14} aria-hidden />}>
          <span className="sr-only">Time range: </span>
          <span className="max-w-56 truncate max-sm:hidden">{nameOf(value, zone)}</span>
          <span className="sm:hidden">{fixed ? 'Custom' : value.range && !/\d/.test(value.range) ? rangeName(value.range) : (value.range ?? DEFAULT_SPAN)}</span>
        </Button>
      }
    >
      <div className="flex flex-col gap-3 p-2 sm:flex-row">
        <div className="grid w-40 content-start gap-0.5 max-sm:w-full max-sm:grid-cols-2">
          {[...SPANS, ...CALENDAR].map((span) => (
            <button key={span} type="button" className="popup-item" aria-current={!fixed && (value.range ?? DEFAULT_SPAN) === span} onClick={() => choose({ range: span })}>
              {rangeName(span)}
            </button>
          ))}
        </div>
        <form
          className="flex w-56 flex-col gap-2 border-line max-sm:w-full sm:border-l sm:pl-3"
          onSubmit={(event) => {
            event.preventDefault()
            const data = new FormData(event.currentTarget)
            const from = fromInput(String(data.get('from')), utc)
            const to = fromInput(String(data.get('to')), utc)
            if (from && to && from < to) choose({ from, to })
            else setError('To must be after From')
          }}
        >
          <Field label="From">
            <Input type="datetime-local" name="from" step={60} required defaultValue={toInput(value.from, utc)} />
          </Field>
          <Field label="To" hint={`Times are ${zoneName(zone)}`} error={error}>
            <Input type="datetime-local" name="to" step={60} required defaultValue={toInput(value.to, utc)} />
          </Field>
          <Button type="submit">Apply</Button>
        </form>
      </div>
    </Popover>
  )
}

function nameOf(value: RangeSearch, zone: Zone): string {
  if (!value.from || !value.to) return rangeName(value.range)
  const day = (at: string) => time(at, zone, 'day')
  const minute = (at: string) => time(at, zone, 'minute')
  const end = day(value.from) === day(value.to) ? minute(value.to) : `${day(value.to)} ${minute(value.to)}`
  return `${day(value.from)} ${minute(value.from)} – ${end}`
}

/** `datetime-local` has no time zone; convert from and to the displayed one. */
function toInput(iso: string | undefined, utc: boolean): string | undefined {
  if (!iso) return undefined
  const at = new Date(iso)
  return new Date(at.getTime() - (utc ? 0 : at.getTimezoneOffset() * 60_000)).toISOString().slice(0, 16)
}

function fromInput(text: string, utc: boolean): string | null {
  const at = new Date(utc ? `${text}Z` : text)
  return Number.isNaN(at.getTime()) ? null : at.toISOString()
}
