import { Bookmark, HardDriveUpload, Link2, Pencil, Plus, Trash2, Users } from 'lucide-react'
import { useState } from 'react'
import { copyText } from '@/lib/clipboard'
import type { SavedView } from '@/lib/prefs'
import { stringifySearch } from '@/lib/search'
import { useAction } from '@/lib/useAction'
import { isShowing, searchOf, type ViewSearch } from '@/lib/views'
import { Button, ConfirmDialog, Menu, MenuItem, MenuLabel, MenuLine, toast, toastError } from '@/ui'
import { BrowserViews } from './BrowserViews'
import { RenameView, SaveView } from './SaveView'
import { useViews, type View, type ViewPage } from './useViews'

interface ViewsMenuProps {
  page: ViewPage
  standard: readonly SavedView[]
  current: ViewSearch
  /** The columns that are shown, if a view can have some. */
  columns?: readonly string[]
  /** Views of earlier versions, which are in this browser, and a function that changes them. */
  browser?: { views: readonly SavedView[]; onChange(views: readonly SavedView[]): void }
  onOpen(search: ViewSearch, columns: readonly string[] | null): void
}

/** Standard views, those that the user saved, and those that others share. Every view is an address, too. */
export function ViewsMenu({ page, standard, current, columns, browser, onOpen }: ViewsMenuProps) {
  const views = useViews(page)
  const [open, setOpen] = useState<'save' | 'browser' | { rename: View } | { remove: View } | null>(null)
  const saved = [...views.mine, ...views.others].find((view) => isShowing(current, searchOf(view)))
  const changeable = saved && views.mayChange(saved) ? saved : null
  const inBrowser = browser?.views ?? []
  const name = saved?.name ?? [...standard, ...inBrowser].find((view) => isShowing(current, view.search))?.name
  const close = () => setOpen(null)
  const share = useAction(async (view: View) => {
    try {
      await views.change(view, { shared: !view.shared })
      toast(view.shared ? `${view.name} is private again` : `${view.name} is shared with the organization`)
    } catch (error) {
      toastError(error)
    }
  })
  const copy = async () => {
    if (await copyText(`${location.origin}/console/${page}${stringifySearch({ ...current })}`)) toast('Link to this view copied')
  }
  return (
    <>
      <Menu align="start" trigger={<Button icon={<Bookmark size={14} aria-hidden />}><span className="name max-w-48 truncate text-left">{name ?? 'Views'}</span></Button>}>
        <div className="max-h-[50vh] max-w-80 overflow-y-auto">
          {standard.map((view) => (
            <MenuItem key={view.name} onSelect={() => onOpen(view.search, null)}>
              {view.name}
            </MenuItem>
          ))}
          <ViewItems label="Mine" views={views.mine} onOpen={onOpen} />
          <ViewItems label="Shared by others" views={views.others} onOpen={onOpen} />
          {inBrowser.length > 0 && (
            <>
              <MenuLine />
              <MenuLabel>Only in this browser</MenuLabel>
              {inBrowser.map((view) => (
                <MenuItem key={view.name} onSelect={() => onOpen(view.search, null)}>
                  <span className="break-words">{view.name}</span>
                </MenuItem>
              ))}
            </>
          )}
        </div>
        <MenuLine />
        <MenuItem icon={<Plus size={14} aria-hidden />} onSelect={() => setOpen('save')}>
          Save this view…
        </MenuItem>
        {inBrowser.length > 0 && (
          <MenuItem icon={<HardDriveUpload size={14} aria-hidden />} onSelect={() => setOpen('browser')}>
            Save the views of this browser…
          </MenuItem>
        )}
        <MenuItem icon={<Link2 size={14} aria-hidden />} onSelect={() => void copy()}>
          Copy link to this view
        </MenuItem>
        {changeable && (
          <>
            <MenuLine />
            <MenuLabel>{changeable.name}</MenuLabel>
            {views.isMine(changeable) && (
              <MenuItem icon={<Users size={14} aria-hidden />} blocked={!changeable.shared && !views.mayShare && 'Needs the role member'} onSelect={() => share.run(changeable)}>
                {changeable.shared ? 'Make private' : 'Share with the organization'}
              </MenuItem>
            )}
            <MenuItem icon={<Pencil size={14} aria-hidden />} onSelect={() => setOpen({ rename: changeable })}>
              Rename…
            </MenuItem>
            <MenuItem danger icon={<Trash2 size={14} aria-hidden />} onSelect={() => setOpen({ remove: changeable })}>
              Delete…
            </MenuItem>
          </>
        )}
      </Menu>
      {open === 'save' && <SaveView page={page} views={views} current={current} columns={columns} onClose={close} />}
      {open === 'browser' && browser && <BrowserViews page={page} views={views} browser={browser.views} onChange={browser.onChange} onClose={close} />}
      {open !== null && typeof open === 'object' && 'rename' in open && <RenameView views={views} view={open.rename} onClose={close} />}
      {open !== null && typeof open === 'object' && 'remove' in open && (
        <ConfirmDialog open onClose={close} title={`Delete ${open.remove.name}?`} action="Delete view" onConfirm={() => views.remove(open.remove)}>
          {open.remove.shared ? 'It disappears for everyone in the organization.' : 'Only you see it.'} Requests are not deleted.
        </ConfirmDialog>
      )}
    </>
  )
}

function ViewItems({ label, views, onOpen }: { label: string; views: readonly View[]; onOpen: ViewsMenuProps['onOpen'] }) {
  if (views.length === 0) return null
  return (
    <>
      <MenuLine />
      <MenuLabel>{label}</MenuLabel>
      {views.map((view) => (
        <MenuItem key={view.id} onSelect={() => onOpen(searchOf(view), view.columns ?? null)}>
          <span className="flex items-center gap-2">
            <span className="min-w-0 break-words">{view.name}</span>
            {view.shared && label === 'Mine' && <span className="ml-auto shrink-0 text-xs text-muted">shared</span>}
          </span>
        </MenuItem>
      ))}
    </>
  )
}
