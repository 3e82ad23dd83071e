import { X } from 'lucide-react'
import { useState } from 'react'
import { asApiError } from '@/api/error'
import { plural } from '@/lib/format'
import type { SavedView } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { contentOf } from '@/lib/views'
import { Button, FormDialog, toast } from '@/ui'
import type { ViewPage, Views } from './useViews'

interface BrowserViewsProps {
  page: ViewPage
  views: Views
  browser: readonly SavedView[]
  onChange(views: readonly SavedView[]): void
  onClose(): void
}

/** Moves the views that are only in this browser to the organization, as private ones. Those that cannot be saved stay. */
export function BrowserViews({ page, views, browser, onChange, onClose }: BrowserViewsProps) {
  const [problems, setProblems] = useState<Readonly<Record<string, string>>>({})
  const save = useAction(async () => {
    const failed: Record<string, string> = {}
    const left: SavedView[] = []
    for (const view of browser) {
      try {
        await views.create({ name: view.name, page, ...contentOf(view.search) })
      } catch (error) {
        const isTaken = views.mine.some((other) => other.name === view.name)
        failed[view.name] = isTaken ? 'You have a view with this name. Rename that one, or remove this one.' : asApiError(error).message
        left.push(view)
      }
    }
    onChange(left)
    setProblems(failed)
    if (left.length < browser.length) toast(`${plural(browser.length - left.length, 'view')} saved`)
    if (left.length === 0) onClose()
  })
  return (
    <FormDialog onClose={onClose} size="sm" title="Save the views of this browser" description="They become your private views. You have them in every browser and can share them." action={save} submit={`Save ${plural(browser.length, 'view')}`} blocked={browser.length === 0 && 'No views are left'}>
      <ul className="flex flex-col gap-1">
        {browser.map((view) => (
          <li key={view.name} className="flex items-start gap-2 rounded-sm bg-sunken px-2 py-1">
            <div className="min-w-0 flex-1">
              <p className="break-words">{view.name}</p>
              <code className="block text-xs break-all text-muted">{contentOf(view.search).query || 'all requests'}</code>
              {problems[view.name] && <p className="text-xs text-err">{problems[view.name]}</p>}
            </div>
            <Button kind="ghost" size="sm" square aria-label={`Remove ${view.name} from this browser`} title="Remove from this browser" icon={<X size={14} aria-hidden />} onClick={() => onChange(browser.filter((other) => other !== view))} />
          </li>
        ))}
      </ul>
    </FormDialog>
  )
}
