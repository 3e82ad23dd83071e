import { useNavigate } from '@tanstack/react-router'
import { Database, Download, FlaskConical, Repeat, X } from 'lucide-react'
import { useState } from 'react'
import type { LogRow } from '@/api/logs'
import { plural } from '@/lib/format'
import { Button } from '@/ui'
import { AddToDataset, RunEval } from '../log/Choices'

/** The API adds at most this many rows at once. */
const MAX_CASES = 200

interface SelectionBarProps {
  rows: readonly LogRow[]
  onExport(): void
  onClear(): void
}

/** What can be done with the chosen rows. */
export function SelectionBar({ rows, onExport, onClear }: SelectionBarProps) {
  const navigate = useNavigate()
  const [open, setOpen] = useState<'dataset' | 'eval' | null>(null)
  const ids = rows.map((row) => row.id)
  const tooMany = rows.length > MAX_CASES && `At most ${MAX_CASES} rows at once`
  const unkept = rows.some((row) => row.request_stored === 'off') && 'The bodies of some of these requests were not kept'
  return (
    <div role="region" aria-label="Selected rows" className="flex flex-wrap items-center gap-1 border-t border-line bg-accent-soft px-4 py-1">
      <span className="mr-2 font-medium tabular-nums" role="status">
        {plural(rows.length, 'row')} selected
      </span>
      <Button size="sm" icon={<Database size={14} aria-hidden />} needs="member" blocked={tooMany || unkept} onClick={() => setOpen('dataset')}>
        Add to dataset
      </Button>
      <Button size="sm" icon={<FlaskConical size={14} aria-hidden />} needs="member" blocked={tooMany} onClick={() => setOpen('eval')}>
        Run an eval
      </Button>
      <Button size="sm" icon={<Repeat size={14} aria-hidden />} needs="member" blocked={tooMany || unkept} onClick={() => void navigate({ to: '/replays/new', search: { logs: ids.join(',') } })}>
        Replay
      </Button>
      <Button size="sm" icon={<Download size={14} aria-hidden />} onClick={onExport}>
        Export
      </Button>
      <Button size="sm" kind="ghost" icon={<X size={14} aria-hidden />} onClick={onClear}>
        Clear selection
      </Button>
      {open === 'dataset' && <AddToDataset logIds={ids} onClose={() => setOpen(null)} />}
      {open === 'eval' && <RunEval logIds={ids} onClose={() => setOpen(null)} />}
    </div>
  )
}
