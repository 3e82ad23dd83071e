import { Plus } from 'lucide-react'
import { useCallback, useMemo, useState, type ReactNode } from 'react'
import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { useWidth } from '@/charts/useWidth'
import { plural } from '@/lib/format'
import { ROW_HEIGHT, usePrefs } from '@/lib/prefs'
import { useShortcuts } from '@/lib/shortcuts'
import { Button, Code, DockedDrawer, Empty, ErrorPanel, Page, Select, SkeletonRows } from '@/ui'
import { VirtualTable, type GridColumn } from '@/ui/VirtualTable'
import { CaseEditor } from './CaseEditor'
import type { DatasetSearch } from './search'

type Case = Schemas['Case']

interface CasesProps {
  dataset: Schemas['Dataset']
  search: DatasetSearch
  set(change: Partial<DatasetSearch>): void
  about: string
  actions: ReactNode
  links: ReactNode
  onImport(): void
}

/** Virtualized grid of cases, edited in a drawer. */
export function Cases({ dataset, search, set, about, actions, links, onImport }: CasesProps) {
  const { density } = usePrefs()
  const [box, width] = useWidth<HTMLDivElement>(1000)
  const { version, case: open } = search
  const list = api.useInfiniteQuery('get', '/api/v1/datasets/{datasetId}/cases', { params: { path: { datasetId: dataset.id }, query: { version, limit: 200 } } }, cursorPaging)
  const cases = useMemo(() => list.data?.pages.flatMap((page) => page.cases) ?? [], [list.data])
  const columns = COLUMNS.filter((column) => width >= column.from)
  const [cursor, setCursor] = useState<string | null>(null)
  const at = cases.findIndex((one) => one.id === open)
  const move = (row: Case) => {
    setCursor(row.id)
    if (open !== undefined) set({ case: row.id })
  }
  const step = (by: number) => {
    const from = cases.findIndex((one) => one.id === (open ?? cursor))
    const next = cases[from < 0 ? 0 : Math.min(cases.length - 1, Math.max(0, from + by))]
    if (next) move(next)
  }
  useShortcuts({ j: () => step(1), k: () => step(-1) })
  const onEnd = useCallback(() => {
    if (list.hasNextPage && !list.isFetchingNextPage) void list.fetchNextPage()
  }, [list.hasNextPage, list.isFetchingNextPage, list.fetchNextPage])
  const shown = cases[at]
  const frozen = version !== undefined
  const add = (
    <Button size="sm" icon={<Plus size={14} aria-hidden />} needs="member" blocked={frozen && 'A version cannot be changed'} onClick={() => set({ case: 'new' })}>
      Add case
    </Button>
  )
  return (
    <DockedDrawer
      open={open !== undefined}
      onClose={() => set({ case: undefined })}
      label={open === 'new' ? 'New case' : 'Case'}
      head={<h2 className="py-1 text-base">{open === 'new' ? 'New case' : shown ? `Case ${at + 1}` : 'Case'}</h2>}
      content={
        open === 'new' || shown ? (
          <CaseEditor key={open} datasetId={dataset.id} value={open === 'new' ? null : (shown ?? null)} frozen={frozen} onSaved={(id) => set({ case: id })} onDeleted={() => set({ case: undefined })} />
        ) : (
          <p className="p-4 text-muted">{list.hasNextPage ? 'This case is further down: scroll to it first.' : 'There is no such case in this version.'}</p>
        )
      }
    >
      <Page fixed title={dataset.name} about={about} actions={actions}>
        {links}
        <div className="flex flex-wrap items-center gap-2 px-4 py-2">
          <label className="flex items-center gap-2">
            <span className="text-muted">Show</span>
            <Select
              className="w-44"
              value={String(version ?? '')}
              onChange={(event) => set({ version: event.target.value === '' ? undefined : Number(event.target.value), case: undefined })}
              options={[{ value: '', label: 'Working copy' }, ...Array.from({ length: dataset.current_version }, (_, index) => ({ value: String(dataset.current_version - index), label: `Version ${dataset.current_version - index}` }))]}
            />
          </label>
          {add}
        </div>
        <div ref={box} className="flex min-h-0 flex-1 flex-col border-t border-line">
          {list.isError ? (
            <div className="p-4">
              <ErrorPanel error={list.error} what="the cases" onRetry={() => void list.refetch()} />
            </div>
          ) : !list.data ? (
            <SkeletonRows rows={12} height={ROW_HEIGHT[density]} />
          ) : cases.length === 0 ? (
            <Empty title="No cases yet" action={<Button kind="primary" needs="member" onClick={onImport}>Import a file</Button>} more={<Code label="JSON lines" code={'{"input": "What is 2 + 2?", "expected": "4"}\n{"input": {"question": "Capital of France?"}, "expected": "Paris", "metadata": {"topic": "geography"}}'} />}>
              A case is an input, the expected answer, and any other data you want to keep with it.
            </Empty>
          ) : (
            <VirtualTable label="Cases" columns={columns} rows={cases} rowId={(row) => row.id} rowHeight={ROW_HEIGHT[density]} rowCount={list.hasNextPage ? -1 : cases.length + 1} selected={open ?? cursor} onOpen={(row) => set({ case: row.id })} onMove={move} onEnd={onEnd} />
          )}
        </div>
        <p className="border-t border-line bg-surface px-4 py-1 text-xs text-muted tabular-nums">
          {plural(cases.length, 'case')} loaded{list.hasNextPage ? ', more below' : ''}
        </p>
      </Page>
    </DockedDrawer>
  )
}

interface CaseColumn extends GridColumn<Case> {
  from: number
}

const COLUMNS: readonly CaseColumn[] = [
  { key: 'input', header: 'Input', width: 'minmax(140px, 3fr)', from: 0, cell: (row) => displayValue(row.input) },
  { key: 'expected', header: 'Expected', width: 'minmax(100px, 2fr)', from: 0, cell: (row) => (row.expected === null ? <span className="text-muted">–</span> : displayValue(row.expected)) },
  { key: 'metadata', header: 'Metadata', width: 'minmax(100px, 2fr)', from: 620, cell: (row) => <code className="text-muted">{row.metadata === null || JSON.stringify(row.metadata) === '{}' ? '–' : JSON.stringify(row.metadata)}</code> },
]

/** Displays strings as text and other values as JSON. */
function displayValue(value: unknown): ReactNode {
  return typeof value === 'string' ? value : <code>{JSON.stringify(value)}</code>
}
