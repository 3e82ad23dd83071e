/** Log exports and their delivery status. */
import { Plus, Share2 } from 'lucide-react'
import { useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { pollingOptions } from '@/api/query'
import { apiSnippet } from '@/lib/snippets'
import { Button, Code, Empty, ErrorPanel, Page, Pager, PlanGate, SkeletonCards } from '@/ui'
import { ExportCard } from './ExportCard'
import { ExportForm } from './ExportForm'

const DESCRIPTION = 'An export streams logs to your tools: as OTLP traces to any OpenTelemetry backend, or as signed batches to a URL.'

export function Exports() {
  const me = useMe()
  const [open, setOpen] = useState<{ config: Schemas['ExportConfig'] | null } | null>(null)
  const options = { ...cursorPaging, ...pollingOptions(10_000), enabled: me.hasEntitlement('integrations') }
  const list = api.useInfiniteQuery('get', '/api/v1/exports', { params: { query: { limit: 50 } } }, options)
  const configs = list.data?.pages.flatMap((page) => page.exports) ?? []
  const create = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => setOpen({ config: null })}>
      Add export
    </Button>
  )
  return (
    <Page title="Exports" about="Stream logs to your observability tools." actions={configs.length > 0 && create}>
      <PlanGate needs="integrations" name="Exports" about={DESCRIPTION}>
        {list.isPending ? (
          <SkeletonCards cards={2} className="h-44" />
        ) : list.isError ? (
          <ErrorPanel error={list.error} what="the exports" onRetry={() => void list.refetch()} />
        ) : configs.length === 0 ? (
          <Empty icon={<Share2 size={24} aria-hidden />} title="No exports yet" action={create} more={<Code label="The same with the API" code={apiSnippet(location.origin, '/exports', { name: 'traces', kind: 'otlp', endpoint: 'https://otel.example.com' })} />}>
            {DESCRIPTION}
          </Empty>
        ) : (
          <>
            <ul className="grid gap-3 xl:grid-cols-2">
              {configs.map((config) => (
                <ExportCard key={config.id} config={config} onEdit={() => setOpen({ config })} />
              ))}
            </ul>
            {list.hasNextPage && <Pager shown={configs.length} what="exports" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
          </>
        )}
      </PlanGate>
      {open && <ExportForm config={open.config} onClose={() => setOpen(null)} />}
    </Page>
  )
}
