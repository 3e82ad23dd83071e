import { BellPlus, ChartLine, Download, Gauge, ListFilter, Pause, Play, Repeat } from 'lucide-react'
import type { ReactNode } from 'react'
import type { OwnCalls } from '@/lib/query'
import { Button, Menu, MenuItem, MenuLabel } from '@/ui'
import { OwnSwitch } from '../OwnSwitch'
import { GROUP_NAMES } from '../usage/groups'
import { GROUPS, type Group } from '../usage/search'

interface ToolbarProps {
  /** Menus on the left: views. */
  children: ReactNode
  /** Menus on the right: columns. */
  end: ReactNode
  facets: { open: boolean; onToggle(): void }
  own: { own: OwnCalls; blocked: boolean; onChange(own: OwnCalls): void }
  /** Null if the list is not live. */
  pause: { paused: boolean; onToggle(): void } | null
  onGroup(by: Group): void
  onExport(): void
  onAlert(): void
  onLimit(): void
  onReplay(): void
}

/** Buttons below the query box. */
export function Toolbar({ children, end, facets, own, pause, onGroup, onExport, onAlert, onLimit, onReplay }: ToolbarProps) {
  return (
    <div className="flex flex-wrap items-center gap-2">
      <Button icon={<ListFilter size={14} aria-hidden />} aria-pressed={facets.open} onClick={facets.onToggle}>
        Filters
      </Button>
      {children}
      <Menu align="start" trigger={<Button icon={<ChartLine size={14} aria-hidden />} title="Add up the requests of this query">Group by</Button>}>
        <MenuLabel>Usage of these requests</MenuLabel>
        {GROUPS.map((group) => (
          <MenuItem key={group} onSelect={() => onGroup(group)}>
            {GROUP_NAMES[group]}
          </MenuItem>
        ))}
      </Menu>
      <OwnSwitch {...own} />
      <div className="ml-auto flex items-center gap-2">
        {pause && (
          <Button icon={pause.paused ? <Play size={14} aria-hidden /> : <Pause size={14} aria-hidden />} onClick={pause.onToggle} title="Space">
            {pause.paused ? 'Resume' : 'Pause'}
          </Button>
        )}
        {end}
        <Button square needs="admin" aria-label="Create alert" title="Create an alert on this query" icon={<BellPlus size={14} aria-hidden />} onClick={onAlert} />
        <Button square needs="admin" aria-label="Set limit" title="Set a limit for the user, key or models of this query" icon={<Gauge size={14} aria-hidden />} onClick={onLimit} />
        <Button square needs="member" aria-label="Replay" title="Replay the requests of this query with another model or prompt" icon={<Repeat size={14} aria-hidden />} onClick={onReplay} />
        <Button square aria-label="Export" title="Export as CSV or NDJSON" icon={<Download size={14} aria-hidden />} onClick={onExport} />
      </div>
    </div>
  )
}
