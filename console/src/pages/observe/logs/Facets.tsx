import { keepPreviousData } from '@tanstack/react-query'
import { Ban } from 'lucide-react'
import { api, type Schemas } from '@/api/client'
import { cx } from '@/lib/cx'
import { compact, integer, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { hasField, setValue, valueState, withoutField } from '@/lib/query'
import { ErrorLine, SkeletonRows } from '@/ui'

/** Fields in the sidebar, and what they are called. */
export const FACETS: Readonly<Record<string, string>> = { status: 'Status', error: 'Error', provider: 'Provider', model: 'Model', key: 'Key', app: 'Application', team: 'Team', user: 'User', prompt: 'Prompt', cache: 'Cache' }
const MAX_VALUES = 8

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
  const bounds = { from, ...(to && { to }), limit: MAX_VALUES }
  const options = { staleTime: 15_000, placeholderData: keepPreviousData, retry: false, meta: { quiet: true } }
  const names = Object.keys(FACETS)
  const all = api.useQuery('get', '/api/v1/logs/facets', { params: { query: { ...bounds, query: effective || undefined, fields: names.join(',') } } }, options)
  if (all.isError) return <div className="p-3"><ErrorLine error={all.error} /></div>
  if (!all.data) return <SkeletonRows rows={10} height={26} />
  return (
    <div className="flex flex-col gap-3 p-3">
      <p className="text-xs text-muted" title={all.data.partial ? `Only rows since ${time(all.data.scanned_to, zone)} were counted` : undefined}>
        <span className="font-medium text-fg tabular-nums">{integer(all.data.rows)}</span> {all.data.rows === 1 ? 'request' : 'requests'}
        {all.data.partial && `, counted since ${time(all.data.scanned_to, zone)}`}
      </p>
      {all.data.facets.map((facet) =>
        hasField(query, facet.field) ? (
          <OpenFacet key={facet.field} field={facet.field} query={query} effective={effective} bounds={bounds} fallback={facet} onQuery={onQuery} />
        ) : (
          <Facet key={facet.field} facet={facet} query={query} onQuery={onQuery} />
        ),
      )}
    </div>
  )
}

interface OpenFacetProps {
  field: string
  query: string
  effective: string
  bounds: { from: string; to?: string; limit: number }
  fallback: Schemas['Facet']
  onQuery(query: string): void
}

/** A field that is filtered by: its other values are counted without its own terms, so that they can be chosen too. */
function OpenFacet({ field, query, effective, bounds, fallback, onQuery }: OpenFacetProps) {
  const rest = withoutField(effective, field)
  const found = api.useQuery('get', '/api/v1/logs/facets', { params: { query: { ...bounds, query: rest || undefined, fields: field } } }, { staleTime: 15_000, placeholderData: keepPreviousData, retry: false, meta: { quiet: true } })
  return <Facet facet={found.data?.facets[0] ?? fallback} query={query} onQuery={onQuery} />
}

function Facet({ facet, query, onQuery }: { facet: Schemas['Facet']; query: string; onQuery(query: string): void }) {
  const { field, values } = facet
  const isFiltered = hasField(query, field)
  if (values.length === 0 && !isFiltered) return null
  return (
    <section aria-label={FACETS[field] ?? field}>
      <h3 className="flex items-center text-xs font-medium text-muted">
        <span className="flex-1">{FACETS[field] ?? field}</span>
        {isFiltered && (
          <button type="button" className="min-h-6 font-normal text-accent" aria-label={`Clear ${FACETS[field] ?? field}`} onClick={() => onQuery(withoutField(query, field))}>
            Clear
          </button>
        )}
      </h3>
      <ul>
        {field === 'status' && <Value field={field} value="error" name="All errors" rows={null} query={query} onQuery={onQuery} />}
        {values.map((one) => (
          <Value key={one.value} field={field} value={one.name ?? one.value} name={one.name ?? one.value} rows={one.rows} query={query} onQuery={onQuery} />
        ))}
      </ul>
      {facet.other_values > 0 && <p className="px-1 text-xs text-muted">{compact(facet.other_values)} more in {compact(facet.other_rows)} requests</p>}
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
