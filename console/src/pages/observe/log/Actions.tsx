import { useNavigate } from '@tanstack/react-router'
import { Database, FlaskConical, Play } from 'lucide-react'
import { useState } from 'react'
import { Button, CopyButton } from '@/ui'
import { AddToDataset, RunEval } from './Choices'
import { asCurl, asPython, type LogDetail } from './copyAs'

/** Actions on a request: open in the playground, add to a dataset, evaluate, copy. */
export function Actions({ log }: { log: LogDetail }) {
  const navigate = useNavigate()
  const [open, setOpen] = useState<'dataset' | 'eval' | null>(null)
  const noBody = log.request_stored === 'off' && 'The body of this request was not kept'
  return (
    <div className="flex flex-wrap items-center gap-0.5 border-b border-line px-2 py-1.5">
      <CopyButton value={() => asCurl(log, location.origin)} label="Copy as curl (c)" text="curl" />
      <CopyButton value={() => asPython(log, location.origin)} label="Copy as Python" text="Python" />
      <CopyButton value={() => `${location.origin}/console/logs?log=${log.id}`} label="Copy a link to this request" text="Link" />
      <Button kind="ghost" size="sm" icon={<Play size={14} aria-hidden />} blocked={noBody} needs="member" title="Open in the playground (p)" onClick={() => void navigate({ to: '/playground', search: { log: log.id } })}>
        Playground
      </Button>
      <Button kind="ghost" size="sm" icon={<Database size={14} aria-hidden />} blocked={noBody} needs="member" title="Add to a dataset" onClick={() => setOpen('dataset')}>
        Dataset
      </Button>
      <Button kind="ghost" size="sm" icon={<FlaskConical size={14} aria-hidden />} needs="member" onClick={() => setOpen('eval')}>
        Evaluate
      </Button>
      {open === 'dataset' && <AddToDataset rows={{ ids: [log.id] }} onClose={() => setOpen(null)} />}
      {open === 'eval' && <RunEval rows={{ ids: [log.id] }} onClose={() => setOpen(null)} />}
    </div>
  )
}
