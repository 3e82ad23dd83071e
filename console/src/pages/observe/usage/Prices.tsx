import { useMemo, useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { compact, cost, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Button, ErrorPanel, Input, NoMatch, Section, SkeletonRows, Table, type Column } from '@/ui'

type Price = Schemas['Price']
const STEP = 100

const COLUMNS: readonly Column<Price>[] = [
  { key: 'provider', header: 'Provider', from: 'sm', cell: (row) => row.provider },
  { key: 'model', header: 'Model', className: 'name max-w-72 truncate', cell: (row) => <code title={row.model}>{row.model}</code> },
  { key: 'input', header: 'Input', number: true, cell: (row) => cost(row.input_per_mtok) },
  { key: 'cached', header: 'Cached', number: true, from: 'md', cell: (row) => cost(row.cache_read_per_mtok) },
  { key: 'write', header: 'Cache write', number: true, from: 'lg', cell: (row) => cost(row.cache_write_per_mtok) },
  { key: 'output', header: 'Output', number: true, cell: (row) => cost(row.output_per_mtok) },
  { key: 'context', header: 'Context', number: true, from: 'md', cell: (row) => compact(row.max_input_tokens) },
]

/** Model prices used for cost calculation. */
export function Prices({ q, onSearch }: { q: string; onSearch(q: string): void }) {
  const { zone } = usePrefs()
  const [shown, setShown] = useState(STEP)
  const prices = api.useQuery('get', '/api/v1/usage/prices', {}, { staleTime: 600_000 })
  const words = q.toLowerCase().split(/\s+/).filter(Boolean)
  const found = useMemo(() => (prices.data?.prices ?? []).filter((row) => words.every((word) => `${row.provider} ${row.model}`.toLowerCase().includes(word))), [prices.data, q])
  if (prices.isError) return <ErrorPanel error={prices.error} what="the prices" onRetry={() => void prices.refetch()} />
  return (
    <div className="flex flex-col gap-3 pt-4">
      <div className="flex flex-wrap items-center gap-3">
        <Input type="search" aria-label="Find a model" placeholder="Find a model" className="max-w-64" value={q} onChange={(event) => onSearch(event.target.value)} />
        {prices.data && (
          <p className="text-muted">
            {plural(found.length, 'price')}, USD per million tokens, as of {time(prices.data.as_of, zone, 'date')}
          </p>
        )}
      </div>
      <Section flush>
        {!prices.data ? (
          <SkeletonRows rows={12} />
        ) : found.length === 0 ? (
          <NoMatch what="models" onClear={() => onSearch('')} />
        ) : (
          <>
            <Table label="Prices" columns={COLUMNS} rows={found.slice(0, shown)} rowKey={(row) => `${row.provider} ${row.model} ${row.mode}`} />
            {found.length > shown && (
              <div className="border-t border-line p-2">
                <Button size="sm" onClick={() => setShown(shown + STEP)}>
                  Show {Math.min(STEP, found.length - shown)} more of {found.length - shown}
                </Button>
              </div>
            )}
          </>
        )}
      </Section>
    </div>
  )
}
