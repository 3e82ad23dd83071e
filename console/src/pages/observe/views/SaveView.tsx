import { useState } from 'react'
import { useAction } from '@/lib/useAction'
import { contentOf, type ViewSearch } from '@/lib/views'
import { Checkbox, Field, FormDialog, Input, Switch, toast } from '@/ui'
import type { View, ViewPage, Views } from './useViews'

const MAX_NAME = 80

interface SaveViewProps {
  page: ViewPage
  views: Views
  current: ViewSearch
  columns: readonly string[] | undefined
  onClose(): void
}

/** Saves what the page shows. A view of the user with the same name is replaced. */
export function SaveView({ page, views, current, columns, onClose }: SaveViewProps) {
  const [name, setName] = useState('')
  const [shared, setShared] = useState<boolean | null>(null)
  const [withColumns, setWithColumns] = useState(false)
  const before = views.mine.find((view) => view.name === name.trim())
  const isShared = shared ?? before?.shared ?? false
  const save = useAction(async () => {
    const body = { ...contentOf(current), columns: withColumns && columns ? [...columns] : null, shared: isShared }
    if (before) await views.change(before, body)
    else await views.create({ name: name.trim(), page, ...body })
    toast(isShared ? `View “${name.trim()}” saved and shared` : `View “${name.trim()}” saved`)
    onClose()
  })
  return (
    <FormDialog
      onClose={onClose}
      size="sm"
      title="Save this view"
      description={page === 'usage' ? 'Query, grouping, order and time range.' : 'Query, order and time range.'}
      action={save}
      submit={before ? 'Replace' : 'Save'}
      blocked={name.trim() === '' && 'Enter a name'}
      fields={['name']}
    >
      <Field label="Name" hint={before ? 'You have a view with this name. It will be replaced.' : undefined} error={save.fields['name']}>
        <Input value={name} maxLength={MAX_NAME} autoFocus onChange={(event) => setName(event.target.value)} />
      </Field>
      <Switch label="Shared with the organization" hint={views.mayShare ? undefined : 'Needs the role member'} disabled={!views.mayShare} checked={isShared} onChange={(event) => setShared(event.target.checked)} />
      {columns && <Checkbox checked={withColumns} onChange={(event) => setWithColumns(event.target.checked)} label="With the columns that are shown now" hint="Everyone who opens the view gets these columns." />}
    </FormDialog>
  )
}

export function RenameView({ views, view, onClose }: { views: Views; view: View; onClose(): void }) {
  const [name, setName] = useState(view.name)
  const rename = useAction(async () => {
    await views.change(view, { name: name.trim() })
    toast(`Renamed to “${name.trim()}”`)
    onClose()
  })
  return (
    <FormDialog onClose={onClose} size="sm" title={`Rename ${view.name}`} action={rename} submit="Rename" blocked={name.trim() === '' && 'Enter a name'} fields={['name']}>
      <Field label="Name" error={rename.fields['name']}>
        <Input value={name} maxLength={MAX_NAME} autoFocus onChange={(event) => setName(event.target.value)} />
      </Field>
    </FormDialog>
  )
}
