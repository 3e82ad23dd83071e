import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { Database, Plus } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { invalidate } from '@/api/query'
import { ago, time, integer } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Button, Code, Empty, ErrorPanel, Field, FormDialog, Input, NoMatch, Page, Pager, Section, SkeletonRows, Table, TextArea, type Column } from '@/ui'
import { LastRun, useLastRuns } from '../evals/LastRun'

const route = getRouteApi('/shell/datasets')
type Dataset = Schemas['Dataset']

/** List of datasets. */
export function Datasets() {
  const { q = '' } = route.useSearch()
  const navigate = useNavigate()
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const [creating, setCreating] = useState(false)
  const list = api.useInfiniteQuery('get', '/api/v1/datasets', { params: { query: { limit: 100 } } }, cursorPaging)
  const datasets = list.data?.pages.flatMap((page) => page.datasets) ?? []
  const found = datasets.filter((dataset) => `${dataset.name} ${dataset.description}`.toLowerCase().includes(q.toLowerCase()))
  const search = (next: string) => void navigate({ to: '/datasets', search: { q: next || undefined }, replace: true })
  const lastRuns = useLastRuns('dataset_id')
  const columns: Column<Dataset>[] = [
    { key: 'name', header: 'Dataset', className: 'name max-w-64 truncate font-medium', cell: (row) => row.name },
    { key: 'description', header: 'Description', className: 'max-w-80 truncate text-muted', from: 'md', cell: (row) => row.description },
    { key: 'cases', header: 'Cases', number: true, cell: (row) => integer(row.case_count) },
    { key: 'version', header: 'Version', number: true, from: 'sm', cell: (row) => (row.current_version === 0 ? '–' : `v${row.current_version}`) },
    { key: 'run', header: 'Last run', cell: (row) => <LastRun run={lastRuns.get(row.id)} now={now} /> },
    { key: 'updated', header: 'Changed', from: 'sm', cell: (row) => <time dateTime={row.updated_at} title={time(row.updated_at, zone, 'full')} className="whitespace-nowrap">{ago(row.updated_at, now)}</time> },
  ]
  const create = (
    <Button kind="primary" needs="member" icon={<Plus size={14} aria-hidden />} onClick={() => setCreating(true)}>
      New dataset
    </Button>
  )
  return (
    <Page title="Datasets" about="Versioned test cases for evals" actions={datasets.length > 0 && create}>
      {list.isError ? (
        <ErrorPanel error={list.error} what="the datasets" onRetry={() => void list.refetch()} />
      ) : !list.data ? (
        <Section flush>
          <SkeletonRows />
        </Section>
      ) : datasets.length === 0 ? (
        <Empty icon={<Database size={24} aria-hidden />} title="No datasets yet" action={create} more={<Code label="A file to import" code={'input,expected\n"What is the capital of France?",Paris\n"What is 2 + 2?",4'} />}>
          A dataset has inputs and expected answers. Import a file, write cases by hand, or take them from the logs.
        </Empty>
      ) : (
        <>
          <Input type="search" aria-label="Find a dataset" placeholder="Find a dataset" className="max-w-72" value={q} onChange={(event) => search(event.target.value)} />
          {found.length === 0 ? (
            <NoMatch what="datasets" onClear={() => search('')} />
          ) : (
            <Section flush>
              <Table label="Datasets" columns={columns} rows={found} rowKey={(row) => row.id} onOpen={(row) => void navigate({ to: '/datasets/$datasetId', params: { datasetId: row.id } })} />
              <Pager shown={found.length} what="datasets" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
            </Section>
          )}
        </>
      )}
      {creating && <DatasetForm onClose={() => setCreating(false)} onDone={(dataset) => void navigate({ to: '/datasets/$datasetId', params: { datasetId: dataset.id } })} />}
    </Page>
  )
}

/** Creates or edits a dataset. */
export function DatasetForm({ dataset, onClose, onDone }: { dataset?: Dataset; onClose(): void; onDone(dataset: Dataset): void }) {
  const [name, setName] = useState(dataset?.name ?? '')
  const [description, setDescription] = useState(dataset?.description ?? '')
  const save = useAction(async () => {
    const body = { name, description }
    const saved = await unwrap(dataset ? client.PUT('/api/v1/datasets/{datasetId}', { params: { path: { datasetId: dataset.id } }, body }) : client.POST('/api/v1/datasets', { body }))
    await invalidate('/api/v1/datasets')
    onClose()
    onDone(saved)
  })
  return (
    <FormDialog
      onClose={onClose}
      title={dataset ? 'Change dataset' : 'New dataset'}
      action={save}
      submit={dataset ? 'Save' : 'Create dataset'}
      fields={['name', 'description']}
    >
      <Field label="Name" error={save.fields['name']}>
        <Input required autoFocus value={name} onChange={(event) => setName(event.target.value)} />
      </Field>
      <Field label="Description" error={save.fields['description']}>
        <TextArea value={description} onChange={(event) => setDescription(event.target.value)} />
      </Field>
    </FormDialog>
  )
}
