/** The audit log: who changed what, with filters in the URL and the state of the chain. */
import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { ScrollText, ShieldCheck } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { OUTCOMES } from '@/lib/auditSearch'
import { time, type Zone } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Button, DockedDrawer, Empty, ErrorLine, ErrorPanel, NoMatch, Page, Pager, Section, SkeletonRows, Status } from '@/ui'
import { FilterChips, FilterMenu, type Filter } from '@/ui/Chips'
import type { Entry } from './ChangeList'
import { EntryDetail } from './EntryDetail'
import { EntryTable } from './EntryTable'

const route = getRouteApi('/shell/org/audit')
type Verification = Schemas['AuditVerification']

export function Audit() {
  const { orgId } = useMe()
  const search = route.useSearch()
  const navigate = useNavigate()
  const now = useNow(15_000)
  const [open, setOpen] = useState<Entry | null>(null)
  const list = api.useInfiniteQuery(
    'get',
    '/api/v1/orgs/{orgId}/audit',
    { params: { path: { orgId }, query: { ...search, limit: 100 } } },
    { ...cursorPaging, placeholderData: (before) => before },
  )
  const entries = list.data?.pages.flatMap((page) => page.entries) ?? []
  const filters: Filter[] = [
    { name: 'actor', label: 'Actor id', value: search.actor },
    { name: 'action', label: 'Action', value: search.action },
    { name: 'target_type', label: 'Target type', value: search.target_type },
    { name: 'target_id', label: 'Target id', value: search.target_id },
    { name: 'outcome', label: 'Outcome', value: search.outcome, closed: true, options: OUTCOMES.map((outcome) => ({ value: outcome, label: outcome })) },
    { name: 'q', label: 'Text', value: search.q },
  ]
  const set = (name: string, value: string | undefined) => void navigate({ to: '/org/audit', search: { ...search, [name]: value } })
  const isFiltered = filters.some((filter) => filter.value)
  return (
    <DockedDrawer open={open !== null} onClose={() => setOpen(null)} label="Audit entry" head={open && <span className="font-medium">#{open.seq}</span>} content={open && <EntryDetail entry={open} />}>
      <Page title="Audit log" about="Who changed what. Each entry contains the hash of the previous one, so tampering is detected." actions={<FilterMenu filters={filters} onChange={set} />}>
        <ChainState orgId={orgId} />
        {isFiltered && (
          <div className="flex flex-wrap gap-1">
            <FilterChips filters={filters} onChange={set} />
          </div>
        )}
        {list.isError ? (
          <ErrorPanel error={list.error} what="the audit log" onRetry={() => void list.refetch()} />
        ) : !list.data ? (
          <Section flush>
            <SkeletonRows rows={10} />
          </Section>
        ) : entries.length === 0 ? (
          isFiltered ? (
            <NoMatch what="entries" chips={<FilterChips filters={filters} onChange={set} />} onClear={() => void navigate({ to: '/org/audit', search: {} })} />
          ) : (
            <Empty icon={<ScrollText size={24} aria-hidden />} title="No entries yet">
              Changes to keys, members and everything else appear here.
            </Empty>
          )
        ) : (
          <Section flush>
            <EntryTable entries={entries} now={now} selected={open?.id ?? null} onOpen={setOpen} />
            <Pager shown={entries.length} what="entries" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
          </Section>
        )}
      </Page>
    </DockedDrawer>
  )
}

/** The head of the chain, and a button that verifies it. */
function ChainState({ orgId }: { orgId: string }) {
  const head = api.useQuery('get', '/api/v1/orgs/{orgId}/audit/head', { params: { path: { orgId } } })
  const { zone } = usePrefs()
  const [result, setResult] = useState<Verification | null>(null)
  const verify = useAction(async () => {
    setResult(await unwrap(client.POST('/api/v1/orgs/{orgId}/audit/verify', { params: { path: { orgId } }, body: {} })))
  })
  const shown = result?.head ?? head.data
  return (
    <Section title="Chain">
      <div className="flex flex-wrap items-center gap-3">
        {shown && (
          <span className="min-w-0 text-muted">
            #{shown.seq.toLocaleString('en')} <code className="break-all">{shown.hash}</code>
          </span>
        )}
        <Button icon={<ShieldCheck size={14} aria-hidden />} busy={verify.busy} onClick={() => verify.run()}>
          Verify
        </Button>
        {result && <Status tone={result.ok ? 'ok' : 'err'}>{verdict(result, zone)}</Status>}
        <ErrorLine error={verify.error} />
      </div>
    </Section>
  )
}

function verdict({ ok, head, first_bad, checkpoint }: Verification, zone: Zone): string {
  if (!ok) return `not intact: #${first_bad?.seq.toLocaleString('en')} (${first_bad?.why})`
  const signed = checkpoint ? `checkpoint ${time(checkpoint.at, zone)}` : 'no checkpoint yet'
  return `intact up to #${(head?.seq ?? 0).toLocaleString('en')}, ${signed}`
}
