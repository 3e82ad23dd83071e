import { useNavigate } from '@tanstack/react-router'
import { Database, Download, FlaskConical, Repeat, X } from 'lucide-react'
import { useState } from 'react'
import type { LogRow } from '@/api/logs'
import { integer, plural } from '@/lib/format'
import { Button } from '@/ui'
import { MAX_MATCHING, type ChosenRows } from '../log/chosenRows'
import { AddToDataset, RunEval } from '../log/Choices'
import type { RowQuery } from './exportFile'
import { useMatching } from './useMatching'

/** The API makes test cases and replays of at most this many given rows, and evaluates at most `MAX_MATCHING`. */
const MAX_CASES = 200

interface SelectionBarProps {
  rows: readonly LogRow[]
  /** Their ids: another object after each change of the choice. */
  ids: ReadonlySet<number>
  /** Whether every loaded row is chosen. */
  isAllLoaded: boolean
  query: RowQuery
  onExport(rows: readonly LogRow[]): void
  onReplay(): void
  onClear(): void
}

/** What can be done with the chosen rows, or with all that match the query. */
export function SelectionBar({ rows, ids: choice, isAllLoaded, query, onExport, onReplay, onClear }: SelectionBarProps) {
  const navigate = useNavigate()
  const [open, setOpen] = useState<'dataset' | 'eval' | null>(null)
  // The choice for which all matching rows are meant. It stays while further rows arrive, and ends with the next click on a row.
  const [allOf, setAllOf] = useState<ReadonlySet<number> | null>(null)
  const all = allOf === choice
  const matching = useMatching(query, isAllLoaded || all)
  const ids = rows.map((row) => row.id)
  const chosen: ChosenRows = all ? { query: query.query ?? '', from: query.from, to: query.to, count: matching } : { ids }
  const tooMany = (most: number) => !all && rows.length > most && `At most ${integer(most)} chosen rows at once. Choose all loaded rows, then all matching ones`
  const unkept = !all && rows.some((row) => row.request_stored === 'off') && 'The bodies of some of these requests were not kept'
  const matchingText = matching === null ? 'all matching rows' : `all ${plural(matching, 'matching row')}`
  return (
    <div role="region" aria-label="Selected rows" className="flex flex-wrap items-center gap-1 border-t border-line bg-accent-soft px-4 py-1">
      <span className="mr-2 font-medium tabular-nums first-letter:uppercase" role="status">
        {all ? matchingText : plural(rows.length, 'row')} selected
      </span>
      {(isAllLoaded || all) && (
        <Button size="sm" aria-pressed={all} onClick={() => setAllOf(all ? null : choice)} title="Includes rows that are not loaded yet">
          {all ? `Only the ${integer(rows.length)} chosen` : `Select ${matchingText}`}
        </Button>
      )}
      <Button size="sm" icon={<Database size={14} aria-hidden />} needs="member" blocked={tooMany(MAX_CASES) || unkept} onClick={() => setOpen('dataset')}>
        Add to dataset
      </Button>
      <Button size="sm" icon={<FlaskConical size={14} aria-hidden />} needs="member" blocked={tooMany(MAX_MATCHING)} onClick={() => setOpen('eval')}>
        Run an eval
      </Button>
      <Button size="sm" icon={<Repeat size={14} aria-hidden />} needs="member" blocked={tooMany(MAX_CASES) || unkept} onClick={() => (all ? onReplay() : void navigate({ to: '/replays/new', search: { logs: ids.join(',') } }))}>
        Replay
      </Button>
      <Button size="sm" icon={<Download size={14} aria-hidden />} onClick={() => onExport(all ? [] : rows)}>
        Export
      </Button>
      <Button size="sm" kind="ghost" icon={<X size={14} aria-hidden />} onClick={onClear}>
        Clear selection
      </Button>
      {open === 'dataset' && <AddToDataset rows={chosen} onClose={() => setOpen(null)} />}
      {open === 'eval' && <RunEval rows={chosen} onClose={() => setOpen(null)} />}
    </div>
  )
}
