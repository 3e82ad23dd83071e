/** A page with the drawer of one request, shared by logs, sessions and onboarding. */
import type { ReactNode } from 'react'
import { useNavigate } from '@tanstack/react-router'
import { api } from '@/api/client'
import { copyText } from '@/lib/clipboard'
import { useShortcuts, type Bindings } from '@/lib/shortcuts'
import { DockedDrawer, ErrorPanel, Skeleton, Tabs, toast } from '@/ui'
import { SearchHits } from '@/ui/Marked'
import { Actions } from './Actions'
import { Conversation } from './Conversation'
import { asCurl, type LogDetail } from './copyAs'
import { Cost } from './Cost'
import { Details } from './Details'
import { FailureBlock } from './FailureBlock'
import { LogHeader } from './LogHeader'
import { Raw } from './Raw'
import { LOG_TABS, type LogTab } from './tabs'
import { Timing } from './Timing'
import { Verdicts } from './Verdicts'

const NAMES: Record<LogTab, string> = { conversation: 'Conversation', timing: 'Timing', cost: 'Cost', evals: 'Evals', details: 'Details', raw: 'Raw' }

interface WithLogDrawerProps {
  logId: number | undefined
  /** Words of the search, marked in the conversation. */
  words?: readonly string[]
  tab: LogTab
  onTab(tab: LogTab): void
  onClose(): void
  children: ReactNode
}

export function WithLogDrawer({ logId, words = [], tab, onTab, onClose, children }: WithLogDrawerProps) {
  const open = logId !== undefined
  // Log rows are immutable.
  const detail = api.useQuery('get', '/api/v1/logs/{logId}', { params: { path: { logId: logId ?? 0 } } }, { enabled: open, staleTime: Number.POSITIVE_INFINITY })
  const log = detail.data
  const navigate = useNavigate()

  const bindings: Bindings = Object.fromEntries(LOG_TABS.map((name, at) => [String(at + 1), () => onTab(name)]))
  bindings['c'] = () => {
    if (log) void copyText(asCurl(log, location.origin)).then((done) => done && toast('Copied as curl'))
  }
  bindings['p'] = () => {
    if (log) void navigate({ to: '/playground', search: { log: log.id } })
  }
  useShortcuts(bindings, open)

  return (
    <DockedDrawer
      open={open}
      onClose={onClose}
      label={`Request ${logId ?? ''}`}
      head={log ? <LogHeader log={log} /> : <Skeleton className="my-1.5 h-5 w-48" />}
      content={
        detail.isError ? (
          <div className="p-4">
            <ErrorPanel error={detail.error} what="this request" onRetry={() => void detail.refetch()} />
          </div>
        ) : log ? (
          <SearchHits words={words}>
            <Content log={log} tab={tab} onTab={onTab} />
          </SearchHits>
        ) : (
          <div className="flex flex-col gap-3 p-4" role="status" aria-label="Loading">
            <Skeleton className="h-20 w-full" />
            <Skeleton className="h-32 w-full" />
          </div>
        )
      }
    >
      {children}
    </DockedDrawer>
  )
}

function Content({ log, tab, onTab }: { log: LogDetail; tab: LogTab; onTab(tab: LogTab): void }) {
  const views: Record<LogTab, () => ReactNode> = {
    conversation: () => <Conversation log={log} />,
    timing: () => <Timing log={log} />,
    cost: () => <Cost log={log} />,
    evals: () => <Verdicts logId={log.id} />,
    details: () => <Details log={log} />,
    raw: () => <Raw log={log} />,
  }
  return (
    <>
      <Actions log={log} />
      <FailureBlock log={log} />
      <Tabs
        label="Parts of the request"
        value={tab}
        onChange={onTab}
        items={LOG_TABS.map((name) => ({
          value: name,
          label: NAMES[name],
          content: <div className="flex flex-col gap-3 p-4">{name === tab && views[name]()}</div>,
        }))}
      />
    </>
  )
}
