import { BellPlus, Download, ListFilter, Pause, Play, Repeat } from 'lucide-react'
import type { ReactNode } from 'react'
import type { OwnCalls } from '@/lib/query'
import { Button } from '@/ui'
import { OwnSwitch } from '../OwnSwitch'

interface ToolbarProps {
  /** Menus on the left: views. */
  children: ReactNode
  /** Menus on the right: columns. */
  end: ReactNode
  facets: { open: boolean; onToggle(): void }
  own: { own: OwnCalls; blocked: boolean; onChange(own: OwnCalls): void }
  /** Null if the list is not live. */
  pause: { paused: boolean; onToggle(): void } | null
  onExport(): void
  onAlert(): void
  onReplay(): void
}

/** Buttons below the query box. */
export function Toolbar({ children, end, facets, own, pause, onExport, onAlert, onReplay }: ToolbarProps) {
  return (
    <div className="flex flex-wrap items-center gap-2">
      <Button icon={<ListFilter size={14} aria-hidden />} aria-pressed={facets.open} onClick={facets.onToggle}>
        Filters
      </Button>
      {children}
      <OwnSwitch {...own} />
      <div className="ml-auto flex items-center gap-2">
        {pause && (
          <Button icon={pause.paused ? <Play size={14} aria-hidden /> : <Pause size={14} aria-hidden />} onClick={pause.onToggle} title="Space">
            {pause.paused ? 'Resume' : 'Pause'}
          </Button>
        )}
        {end}
        <Button square needs="admin" aria-label="Create alert" title="Create an alert on this query" icon={<BellPlus size={14} aria-hidden />} onClick={onAlert} />
        <Button square needs="member" aria-label="Replay" title="Replay the requests of this query with another model or prompt" icon={<Repeat size={14} aria-hidden />} onClick={onReplay} />
        <Button square aria-label="Export" title="Export as CSV or NDJSON" icon={<Download size={14} aria-hidden />} onClick={onExport} />
      </div>
    </div>
  )
}
