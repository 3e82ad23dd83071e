import { useQuery } from '@tanstack/react-query'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { comparableText, diffCases } from '@/lib/caseDiff'
import { ago, plural, time, integer } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, Empty, ErrorPanel, Pager, Section, Select, SkeletonRows, Table, type Column } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import type { DatasetSearch } from './search'

type Version = Schemas['DatasetVersion']
type Case = Schemas['Case']
/** Larger versions are not diffed in the browser. */
const MAX_COMPARED_CASES = 5000
const MAX_SHOWN_CHANGES = 50

interface VersionsProps {
  dataset: Schemas['Dataset']
  search: DatasetSearch
  set(change: Partial<DatasetSearch>): void
  onFreeze(): void
}

/** Frozen versions and the diff between two of them. */
export function Versions({ dataset, search, set, onFreeze }: VersionsProps) {
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const list = api.useInfiniteQuery('get', '/api/v1/datasets/{datasetId}/versions', { params: { path: { datasetId: dataset.id }, query: { limit: 50 } } }, cursorPaging)
  const versions = list.data?.pages.flatMap((page) => page.versions) ?? []
  const columns: Column<Version>[] = [
    { key: 'version', header: 'Version', cell: (row) => <span className="font-medium tabular-nums">v{row.version}</span> },
    { key: 'note', header: 'Note', className: 'name max-w-80 truncate', cell: (row) => row.note ?? <span className="text-muted">–</span> },
    { key: 'cases', header: 'Cases', number: true, cell: (row) => integer(row.case_count) },
    { key: 'at', header: 'Frozen', from: 'sm', cell: (row) => <time dateTime={row.created_at} title={time(row.created_at, zone, 'full')} className="whitespace-nowrap">{ago(row.created_at, now)}</time> },
    {
      key: 'compare',
      header: <span className="sr-only">Compare</span>,
      cell: (row) => (
        <Button size="sm" kind="ghost" aria-label={`Compare v${row.version} with the working copy`} onClick={() => set({ base: row.version, version: undefined })}>
          Compare
        </Button>
      ),
    },
  ]
  if (list.isError) return <ErrorPanel error={list.error} what="the versions" onRetry={() => void list.refetch()} />
  if (!list.data) return <SkeletonRows rows={4} />
  if (versions.length === 0) {
    return (
      <Empty title="No versions yet" action={<Button kind="primary" needs="member" blocked={dataset.case_count === 0 && 'There are no cases yet'} onClick={onFreeze}>Freeze version</Button>}>
        A version keeps the cases as they are now. Runs on the same version can be compared, even if the working copy changes.
      </Empty>
    )
  }
  return (
    <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,2fr)_minmax(0,3fr)]">
      <Section flush>
        <Table label="Versions" columns={columns} rows={versions} rowKey={(row) => row.version} onOpen={(row) => set({ view: undefined, version: row.version })} />
        <Pager shown={versions.length} what="versions" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
      </Section>
      <Comparison dataset={dataset} versions={versions} from={search.base ?? dataset.current_version} to={search.version} set={set} />
    </div>
  )
}

interface ComparisonProps {
  dataset: Schemas['Dataset']
  versions: readonly Version[]
  from: number
  /** The working copy if omitted. */
  to: number | undefined
  set(change: Partial<DatasetSearch>): void
}

function Comparison({ dataset, versions, from, to, set }: ComparisonProps) {
  const size = Math.max(to === undefined ? dataset.case_count : 0, ...versions.filter((one) => one.version === from || one.version === to).map((one) => one.case_count))
  const diff = useQuery({
    queryKey: ['get', '/api/v1/datasets/compare', dataset.id, from, to ?? dataset.updated_at],
    enabled: size <= MAX_COMPARED_CASES,
    queryFn: async () => {
      const [before, after] = await Promise.all([allCases(dataset.id, from), allCases(dataset.id, to)])
      return diffCases(before, after)
    },
  })
  const options = versions.map((one) => ({ value: String(one.version), label: `v${one.version}` }))
  return (
    <Section
      title="Compare"
      aside={
        <div className="flex items-center gap-2">
          <Select aria-label="From version" className="!w-20" value={String(from)} onChange={(event) => set({ base: Number(event.target.value) })} options={options} />
          <span className="text-muted">to</span>
          <Select aria-label="To version" className="!w-36" value={String(to ?? '')} onChange={(event) => set({ version: event.target.value === '' ? undefined : Number(event.target.value) })} options={[{ value: '', label: 'working copy' }, ...options]} />
        </div>
      }
    >
      {size > MAX_COMPARED_CASES ? (
        <p className="text-muted">More than {integer(MAX_COMPARED_CASES)} cases are not compared here. Download both and compare the files.</p>
      ) : diff.isError ? (
        <ErrorPanel error={diff.error} what="the cases" onRetry={() => void diff.refetch()} />
      ) : !diff.data ? (
        <SkeletonRows rows={4} />
      ) : (
        <div className="flex flex-col gap-3">
          <p className="flex flex-wrap gap-1" role="status">
            <Badge tone="ok">{diff.data.added.length} added</Badge>
            <Badge tone="err">{diff.data.removed.length} removed</Badge>
            <Badge tone="warn">{diff.data.changed.length} changed</Badge>
            <Badge>{diff.data.unchanged} unchanged</Badge>
          </p>
          {diff.data.changed.slice(0, MAX_SHOWN_CHANGES).map(({ before, after }) => (
            <DiffView key={after.id} before={comparableText(before)} after={comparableText(after)} label="Changed case" />
          ))}
          <Whole title="Added" cases={diff.data.added} />
          <Whole title="Removed" cases={diff.data.removed} />
        </div>
      )}
    </Section>
  )
}

function Whole({ title, cases }: { title: string; cases: readonly Case[] }) {
  if (cases.length === 0) return null
  return (
    <section>
      <h3 className="mb-1 text-xs text-muted">{title}</h3>
      <ul className="card divide-y divide-line">
        {cases.slice(0, MAX_SHOWN_CHANGES).map((one) => (
          <li key={one.id} className="truncate px-3 py-1.5">
            {typeof one.input === 'string' ? one.input : <code>{JSON.stringify(one.input)}</code>}
          </li>
        ))}
      </ul>
      {cases.length > MAX_SHOWN_CHANGES && <p className="mt-1 text-xs text-muted">and {plural(cases.length - MAX_SHOWN_CHANGES, 'more case')}</p>}
    </section>
  )
}

async function allCases(datasetId: string, version: number | undefined): Promise<Case[]> {
  const cases: Case[] = []
  for (let cursor: string | null = null; ; ) {
    const page: Schemas['CaseList'] = await unwrap(client.GET('/api/v1/datasets/{datasetId}/cases', { params: { path: { datasetId }, query: { version, limit: 200, cursor } } }))
    cases.push(...page.cases)
    cursor = page.next_cursor
    if (cursor === null) return cases
  }
}
