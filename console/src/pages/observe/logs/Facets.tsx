import { keepPreviousData } from '@tanstack/react-query'
import { Ban } from 'lucide-react'
import { useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { cx } from '@/lib/cx'
import { compact, integer, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { hasField, setValue, valueState, withoutField } from '@/lib/query'
import { statusText } from '@/lib/statusWords'
import { ErrorLine, SkeletonRows } from '@/ui'
import { splitFields } from './facetFields'

/** Fields in the sidebar, and what they are called. */
export const FACETS: Readonly<Record<string, string>> = { status: 'Status', provider: 'Provider', model: 'Model', key: 'Key', app: 'Application', team: 'Team', user: 'User', prompt: 'Prompt', error: 'Error', level: 'Level', source: 'Source', tool: 'Tool', cache: 'Cache' }
const MAX_VALUES = 8
/** The most that the API lists. */
const ALL_VALUES = 100
const OPTIONS = { staleTime: 15_000, placeholderData: keepPreviousData, retry: false, meta: { quiet: true } }

interface Bounds {
  from: string
  to?: string
}

interface FacetsProps {
  query: string
  effective: string
  from: string
  to: string | undefined
  onQuery(query: string): void
}

/** Values of the matching rows with counts. A click adds a value to the query or removes it; the ban sign excludes it. */
export function Facets({ query, effective, from, to, onQuery }: FacetsProps) {
  const { zone } = usePrefs()
  const bounds: Bounds = { from, ...(to && { to }) }
  const [summed, counted] = splitFields(effective)
  // Two requests: one field that only rows have would keep all others from the sums.
  const params = (fields: readonly string[]) => ({ params: { query: { ...bounds, limit: MAX_VALUES, query: effective || undefined, fields: fields.join(',') } } })
  const first = api.useQuery('get', '/api/v1/logs/facets', params(summed), OPTIONS)
  const second = api.useQuery('get', '/api/v1/logs/facets', params(counted), OPTIONS)
  if (first.isError) return <div className="p-3"><ErrorLine error={first.error} /></div>
  const found = [first, second].flatMap((answer) => answer.data?.facets ?? [])
  const rows = first.data
  return (
    <div className="flex flex-col gap-3 p-3">
      {rows && (
        <p className="text-xs text-muted" title={rows.partial ? `Only rows since ${time(rows.scanned_to, zone)} were counted` : undefined}>
          <span className="font-medium text-fg tabular-nums">{integer(rows.rows)}</span> {rows.rows === 1 ? 'request' : 'requests'}
          {rows.partial && `, counted since ${time(rows.scanned_to, zone)}`}
        </p>
      )}
      {Object.keys(FACETS).map((field) => {
        const facet = found.find((one) => one.field === field)
        return facet && <Facet key={field} facet={facet} query={query} effective={effective} bounds={bounds} onQuery={onQuery} />
      })}
      {(first.isPending || second.isPending) && <SkeletonRows rows={first.isPending ? 10 : 3} height={26} />}
      {second.isError && <ErrorLine error={second.error} />}
      {second.data?.partial && !rows?.partial && <p className="text-xs text-muted">Errors, levels, sources, tools and the cache are counted since {time(second.data.scanned_to, zone)}.</p>}
    </div>
  )
}

interface FacetProps {
  facet: Schemas['Facet']
  query: string
  effective: string
  bounds: Bounds
  onQuery(query: string): void
}

/**
 * One field. If it is filtered by, its other values are counted without its own terms, so that they can be chosen too;
 * "more" asks for all of its values.
 */
function Facet({ facet, query, effective, bounds, onQuery }: FacetProps) {
  const { field } = facet
  const [all, setAll] = useState(false)
  const isFiltered = hasField(query, field)
  const rest = isFiltered ? withoutField(effective, field) : effective
  const own = api.useQuery('get', '/api/v1/logs/facets', { params: { query: { ...bounds, limit: all ? ALL_VALUES : MAX_VALUES, query: rest || undefined, fields: field } } }, { ...OPTIONS, enabled: isFiltered || all })
  const { values, other_values: others, other_rows: otherRows } = ((isFiltered || all) && own.data?.facets[0]) || facet
  if (values.length === 0 && !isFiltered) return null
  const title = FACETS[field] ?? field
  return (
    <section aria-label={title}>
      <h3 className="flex items-center text-xs font-medium text-muted">
        <span className="flex-1">{title}</span>
        {isFiltered && (
          <button type="button" className="min-h-6 font-normal text-accent" aria-label={`Clear ${title}`} onClick={() => onQuery(withoutField(query, field))}>
            Clear
          </button>
        )}
      </h3>
      <ul>
        {field === 'status' && <Value field={field} value="error" name="All errors" rows={null} query={query} onQuery={onQuery} />}
        {values.map((one) => (
          <Value key={one.value} field={field} value={one.name ?? one.value} name={field === 'status' ? statusText(one.value) : (one.name ?? one.value)} rows={one.rows} query={query} onQuery={onQuery} />
        ))}
      </ul>
      {all ? (
        <button type="button" className="min-h-6 px-1 text-xs text-accent" onClick={() => setAll(false)}>
          {own.isFetching ? 'Loading…' : 'Show fewer'}
          {others > 0 && !own.isFetching && <span className="text-muted">; {compact(others)} more are not listed</span>}
        </button>
      ) : (
        others > 0 && (
          <button type="button" className="min-h-6 px-1 text-left text-xs text-accent" onClick={() => setAll(true)}>
            {compact(others)} more <span className="sr-only">of {title} </span>
            <span className="text-muted">in {compact(otherRows)} requests</span>
          </button>
        )
      )}
    </section>
  )
}

interface ValueProps {
  field: string
  value: string
  name: string
  rows: number | null
  query: string
  onQuery(query: string): void
}

function Value({ field, value, name, rows, query, onQuery }: ValueProps) {
  const state = valueState(query, field, value)
  const toggle = (next: 'in' | 'out') => onQuery(setValue(query, field, value, state === next ? null : next))
  return (
    <li className="group flex items-center rounded-sm hover:bg-sunken">
      <button type="button" aria-pressed={state === 'in'} className={cx('flex min-h-6 min-w-0 flex-1 items-center gap-2 px-1 text-left', state === 'in' && 'font-medium text-accent', state === 'out' && 'text-muted line-through')} onClick={() => toggle('in')}>
        <span className={cx('size-3 shrink-0 rounded-[3px] border', state === 'in' ? 'border-accent bg-accent' : 'border-line-strong')} aria-hidden />
        <span className="min-w-0 flex-1 truncate" title={name}>{name}</span>
        {rows !== null && <span className="text-xs text-muted tabular-nums">{compact(rows)}</span>}
      </button>
      <button type="button" aria-pressed={state === 'out'} aria-label={`Exclude ${name}`} title="Exclude" className={cx('grid size-6 shrink-0 place-items-center text-muted hover:text-err focus-visible:opacity-100 pointer-coarse:opacity-100', state === 'out' ? 'text-err' : 'opacity-0 group-hover:opacity-100')} onClick={() => toggle('out')}>
        <Ban size={12} aria-hidden />
      </button>
    </li>
  )
}
