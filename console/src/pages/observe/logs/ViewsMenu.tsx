import { Bookmark, Link2, Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { copyText } from '@/lib/clipboard'
import type { SavedView } from '@/lib/prefs'
import { stringifySearch } from '@/lib/search'
import { useAction } from '@/lib/useAction'
import { Button, Field, FormDialog, Input, Menu, MenuItem, MenuLabel, MenuLine, toast } from '@/ui'

/** The parameters of the address that make a view. */
export type ViewSearch = Readonly<Record<string, string>>

const STANDARD: readonly SavedView[] = [
  { name: 'All requests', search: {} },
  { name: 'Errors', search: { query: 'status:error' } },
  { name: 'Slowest', search: { sort: 'latency' } },
  { name: 'Most expensive', search: { sort: 'cost' } },
  { name: 'Retried', search: { query: 'attempts:>1' } },
  { name: 'Cache hits', search: { query: 'cache:hit' } },
]
const MAX_VIEWS = 50

interface ViewsMenuProps {
  current: ViewSearch
  views: readonly SavedView[]
  onOpen(search: ViewSearch): void
  onChange(views: readonly SavedView[]): void
}

/** Standard views and those that the user saved; every view is an address that can be shared. */
export function ViewsMenu({ current, views, onOpen, onChange }: ViewsMenuProps) {
  const [saving, setSaving] = useState(false)
  const isCurrent = (view: SavedView) => stringifySearch({ ...view.search }) === stringifySearch({ ...current })
  const saved = views.find(isCurrent)
  const share = async () => {
    if (await copyText(`${location.origin}/console/logs${stringifySearch({ ...current })}`)) toast('Link to this view copied')
  }
  return (
    <>
      <Menu align="start" trigger={<Button icon={<Bookmark size={14} aria-hidden />}>{[...views, ...STANDARD].find(isCurrent)?.name ?? 'Views'}</Button>}>
        {STANDARD.map((view) => (
          <MenuItem key={view.name} onSelect={() => onOpen(view.search)}>
            {view.name}
          </MenuItem>
        ))}
        {views.length > 0 && (
          <>
            <MenuLine />
            <MenuLabel>Saved</MenuLabel>
            {views.map((view) => (
              <MenuItem key={view.name} onSelect={() => onOpen(view.search)}>
                {view.name}
              </MenuItem>
            ))}
          </>
        )}
        <MenuLine />
        <MenuItem icon={<Plus size={14} aria-hidden />} blocked={views.length >= MAX_VIEWS && `At most ${MAX_VIEWS} views`} onSelect={() => setSaving(true)}>
          Save this view…
        </MenuItem>
        <MenuItem icon={<Link2 size={14} aria-hidden />} onSelect={() => void share()}>
          Copy link to this view
        </MenuItem>
        {saved && (
          <MenuItem danger icon={<Trash2 size={14} aria-hidden />} onSelect={() => onChange(views.filter((view) => view !== saved))}>
            Delete “{saved.name}”
          </MenuItem>
        )}
      </Menu>
      {saving && <SaveView taken={views} onClose={() => setSaving(false)} onSave={(name) => onChange([...views.filter((view) => view.name !== name), { name, search: current }])} />}
    </>
  )
}

function SaveView({ taken, onSave, onClose }: { taken: readonly SavedView[]; onSave(name: string): void; onClose(): void }) {
  const [name, setName] = useState('')
  const replaces = taken.some((view) => view.name === name.trim())
  const save = useAction(async () => {
    onSave(name.trim())
    toast(`View “${name.trim()}” saved`)
    onClose()
  })
  return (
    <FormDialog onClose={onClose} size="sm" title="Save this view" description="Query, order and time range are kept in this browser. Copy the link to share the view with others." action={save} submit={replaces ? 'Replace' : 'Save'} blocked={name.trim() === '' && 'Enter a name'}>
      <Field label="Name" hint={replaces ? 'A view with this name exists and will be replaced.' : undefined}>
        <Input value={name} maxLength={60} autoFocus onChange={(event) => setName(event.target.value)} />
      </Field>
    </FormDialog>
  )
}
