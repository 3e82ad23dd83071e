import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { Camera, Dices, Download, EllipsisVertical, FlaskConical, Pencil, Trash2, Upload } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { download } from '@/lib/download'
import { plural } from '@/lib/format'
import { FILE_TYPES, type FileFormat } from '@/lib/importFile'
import { Button, ConfirmDialog, ErrorPanel, Menu, MenuItem, MenuLine, Page, Skeleton, SkeletonRows, toast, toastError } from '@/ui'
import { RunList } from '../evals/RunList'
import { RunOnDataset } from '../evals/RunOnDataset'
import { ViewLinks } from '../shared/ViewLinks'
import { Cases } from './Cases'
import { DatasetForm } from './Datasets'
import { Freeze } from './Freeze'
import { Import } from './Import'
import { Sample } from './Sample'
import type { DatasetSearch } from './search'
import { Versions } from './Versions'

const route = getRouteApi('/shell/datasets/$datasetId')
type Open = 'import' | 'freeze' | 'sample' | 'run' | 'edit' | 'delete' | null

/** One dataset: cases, versions and eval runs. */
export function DatasetPage() {
  const { datasetId } = route.useParams()
  const query = api.useQuery('get', '/api/v1/datasets/{datasetId}', { params: { path: { datasetId } } })
  if (query.isError) {
    return (
      <Page title="Dataset">
        <ErrorPanel error={query.error} what="this dataset" onRetry={() => void query.refetch()} />
      </Page>
    )
  }
  if (!query.data) {
    return (
      <Page title="Dataset">
        <Skeleton className="h-6 w-60" />
        <SkeletonRows rows={10} />
      </Page>
    )
  }
  return <Loaded dataset={query.data} />
}

function Loaded({ dataset }: { dataset: Schemas['Dataset'] }) {
  const search: DatasetSearch = route.useSearch()
  const navigate = route.useNavigate()
  const leave = useNavigate()
  const [open, setOpen] = useState<Open>(null)
  const close = () => setOpen(null)
  const path = { datasetId: dataset.id }
  const set = (change: Partial<DatasetSearch>) => void navigate({ search: (before) => ({ ...before, ...change }) })
  const remove = async () => {
    await client.DELETE('/api/v1/datasets/{datasetId}', { params: { path } })
    await leave({ to: '/datasets' })
    await invalidate('/api/v1/datasets')
  }
  const save = async (format: FileFormat) => {
    try {
      const text = await unwrap(client.GET('/api/v1/datasets/{datasetId}/export', { params: { path, query: { format, version: search.version } }, parseAs: 'text' }))
      download(`${dataset.name}.${format}`, FILE_TYPES[format], String(text))
    } catch (error) {
      toastError(error)
    }
  }
  const changed = () => invalidate('/api/v1/datasets')
  const actions = (
    <>
      <Button icon={<Upload size={14} aria-hidden />} needs="member" onClick={() => setOpen('import')}>
        Import
      </Button>
      <Button icon={<Camera size={14} aria-hidden />} needs="member" blocked={dataset.case_count === 0 && 'There are no cases yet'} onClick={() => setOpen('freeze')}>
        Freeze version
      </Button>
      <Button icon={<Dices size={14} aria-hidden />} blocked={dataset.case_count === 0 && 'There are no cases yet'} onClick={() => setOpen('sample')}>
        Sample
      </Button>
      <Button kind="primary" icon={<FlaskConical size={14} aria-hidden />} needs="member" blocked={dataset.case_count === 0 && 'There are no cases yet'} onClick={() => setOpen('run')}>
        Run eval
      </Button>
      <Menu trigger={<Button square aria-label="More" icon={<EllipsisVertical size={14} aria-hidden />} />}>
        <MenuItem needs="member" icon={<Pencil size={14} aria-hidden />} onSelect={() => setOpen('edit')}>
          Name and description
        </MenuItem>
        {(Object.keys(FILE_TYPES) as FileFormat[]).map((format) => (
          <MenuItem key={format} icon={<Download size={14} aria-hidden />} onSelect={() => void save(format)}>
            Download as {format.toUpperCase()}
          </MenuItem>
        ))}
        <MenuLine />
        <MenuItem danger needs="member" icon={<Trash2 size={14} aria-hidden />} onSelect={() => setOpen('delete')}>
          Delete dataset
        </MenuItem>
      </Menu>
    </>
  )
  const view = search.view ?? 'cases'
  const links = (
    <ViewLinks
      label="Parts of the dataset"
      links={(['cases', 'versions', 'runs'] as const).map((name) => ({ name: { cases: 'Cases', versions: 'Versions', runs: 'Runs' }[name], to: '/datasets/$datasetId', params: { datasetId: dataset.id }, search: { view: name === 'cases' ? undefined : name }, current: view === name }))}
    />
  )
  const about = [dataset.description, plural(dataset.case_count, 'case'), dataset.current_version > 0 && `version ${dataset.current_version}`].filter(Boolean).join(' · ')
  return (
    <>
      {view === 'cases' ? (
        <Cases dataset={dataset} search={search} set={set} about={about} actions={actions} links={links} onImport={() => setOpen('import')} />
      ) : (
        <Page title={dataset.name} about={about} actions={actions}>
          {links}
          {view === 'versions' ? <Versions dataset={dataset} search={search} set={set} onFreeze={() => setOpen('freeze')} /> : <RunList datasetId={dataset.id} />}
        </Page>
      )}
      {open === 'import' && <Import dataset={dataset} onClose={close} onDone={changed} />}
      {open === 'freeze' && <Freeze dataset={dataset} onClose={close} />}
      {open === 'sample' && <Sample dataset={dataset} version={search.version} onClose={close} />}
      {open === 'run' && <RunOnDataset datasetId={dataset.id} version={search.version} onClose={close} />}
      {open === 'edit' && <DatasetForm dataset={dataset} onClose={close} onDone={() => toast('Saved')} />}
      <ConfirmDialog open={open === 'delete'} onClose={close} title={`Delete dataset ${dataset.name}?`} action="Delete dataset" typeToConfirm={dataset.name} onConfirm={remove}>
        Its {plural(dataset.case_count, 'case')} and all versions are deleted. Runs on it stay.
      </ConfirmDialog>
    </>
  )
}
