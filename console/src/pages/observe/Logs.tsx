import { getRouteApi } from '@tanstack/react-router'
import { useCallback, useMemo, useRef, useState } from 'react'
import { api } from '@/api/client'
import { ApiError } from '@/api/error'
import type { LogRow } from '@/api/logs'
import { useSession } from '@/api/session'
import { useMe } from '@/api/me'
import { growingColors } from '@/charts/assign'
import { useWidth } from '@/charts/useWidth'
import { plural } from '@/lib/format'
import { ROW_HEIGHT, useLogsPrefs, usePrefs } from '@/lib/prefs'
import { hasField, searchedWords } from '@/lib/query'
import type { RangeSearch } from '@/lib/range'
import { useShortcuts } from '@/lib/shortcuts'
import { viewSearchOf, type ViewSearch } from '@/lib/views'
import { Dialog, ErrorPanel, NoMatch, Page, SkeletonRows } from '@/ui'
import { SearchHits } from '@/ui/Marked'
import { VirtualTable } from '@/ui/VirtualTable'
import { WithLogDrawer } from './log/LogDrawer'
import { Announcer } from './logs/Announcer'
import { inputLine, logColumns, NARROW, visibleColumns } from './logs/columns'
import { ColumnsMenu } from './logs/ColumnsMenu'
import { firstOfDay } from './logs/days'
import { ExportDialog } from './logs/ExportDialog'
import { Facets } from './logs/Facets'
import { limitOf } from './logs/limitOf'
import { LiveBadge } from './logs/LiveBadge'
import { LogsEmpty } from './logs/LogsEmpty'
import { PartialNote } from './logs/Partial'
import { QueryBox } from './query/QueryBox'
import { effectiveQuery, nextSort, orderOf, type LogsSearch, type SortField } from './logs/search'
import { SelectionBar } from './logs/SelectionBar'
import { STANDARD_VIEWS } from './logs/standardViews'
import { Toolbar } from './logs/Toolbar'
import { useLogRows } from './logs/useLogRows'
import { useSelection } from './logs/useSelection'
import { VolumeChart } from './logs/VolumeChart'
import { ViewsMenu } from './views/ViewsMenu'

const route = getRouteApi('/shell/logs')
/** Below this width of the page the filters open as a dialog. */
const SIDEBAR_FROM = 760
const DAY_MS = 86_400_000

export function Logs() {
  const search: LogsSearch & RangeSearch = route.useSearch()
  const navigate = route.useNavigate()
  const session = useSession()
  const { zone, density } = usePrefs()
  const [prefs, setLogsPrefs] = useLogsPrefs(session?.userId ?? '')
  const [box, width] = useWidth<HTMLDivElement>(1000)
  const [paused, setPaused] = useState(false)
  const [atTop, setAtTop] = useState(true)
  const [topKey, setTopKey] = useState(0)
  const [cursor, setCursor] = useState<number | null>(null)
  const [filtersOpen, setFiltersOpen] = useState(false)
  const [exporting, setExporting] = useState<readonly LogRow[] | null>(null)
  const queryBox = useRef<HTMLInputElement>(null)
  const { list, rows, query, lastPage, pending, latest, received, live, state, bounds, showPending } = useLogRows(search, paused || !atTop)
  const [providerColor] = useState(growingColors)
  const keys = api.useQuery('get', '/api/v1/keys', { params: { query: { limit: 200 } } }, { staleTime: 60_000 })
  const { orgId } = useMe()
  const ofOrg = { params: { path: { orgId }, query: { limit: 200 } } }
  const apps = api.useQuery('get', '/api/v1/orgs/{orgId}/apps', ofOrg, { staleTime: 60_000, enabled: prefs.columns['app'] === true })
  const teams = api.useQuery('get', '/api/v1/orgs/{orgId}/teams', ofOrg, { staleTime: 60_000, enabled: prefs.columns['team'] === true })
  const text = search.query ?? ''
  const effective = effectiveQuery(search)
  const selection = useSelection(`${effective} ${search.sort ?? ''}`, rows)
  const words = useMemo(() => searchedWords(text), [text])

  const set = useCallback(
    (change: Partial<LogsSearch & RangeSearch>, replace = false) => void navigate({ search: (before) => ({ ...before, ...change }), replace }),
    [navigate],
  )
  const setQuery = (next: string) => set({ query: next || undefined })
  const clear = () => set({ query: undefined })

  const withDate = Date.parse(bounds.to) - Date.parse(bounds.from) > DAY_MS
  const order = orderOf(search.sort)
  const isFirstOfDay = useMemo(() => (withDate && order.field === 'time' ? firstOfDay(rows, order.ascending, zone) : () => false), [withDate, order.field, order.ascending, rows, zone])
  const isPhone = width < NARROW && matchMedia('(width < 40rem)').matches
  const all = useMemo(() => {
    const named = (list: readonly { id: string; name: string }[] | undefined) => (id: string) => list?.find((one) => one.id === id)?.name ?? id.slice(0, 8)
    return logColumns({ zone, withDate, isNarrow: width < NARROW, isPhone, keyName: named(keys.data?.keys), appName: named(apps.data?.apps), teamName: named(teams.data?.teams), providerColor, isFirstOfDay })
  }, [zone, withDate, width < NARROW, isPhone, keys.data, apps.data, teams.data, providerColor, isFirstOfDay])
  const wide = width >= SIDEBAR_FROM
  const showSidebar = wide && prefs.facets === 'open' && search.log === undefined
  const columns = visibleColumns(all, width - (showSidebar ? 224 : 0), prefs)

  const openView = (next: ViewSearch, shown: readonly string[] | null) => {
    if (shown) setLogsPrefs({ columns: Object.fromEntries(all.map((column) => [column.key, shown.includes(column.key)])) })
    void navigate({ search: () => ({ ...(search.range && { range: search.range }), ...next }) })
  }
  const replay = () => void navigate({ to: '/replays/new', search: { query: text || undefined } })
  const open = (row: LogRow) => {
    setCursor(row.id)
    set({ log: row.id }, search.log !== undefined)
  }
  const move = (row: LogRow) => (search.log === undefined ? setCursor(row.id) : open(row))
  const selected = search.log ?? cursor
  const step = (by: number) => {
    const at = rows.findIndex((row) => row.id === selected)
    const row = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))]
    if (row) move(row)
  }
  const togglePause = () => {
    if (paused) showPending()
    setPaused(!paused)
  }
  const jumpToTop = () => {
    showPending()
    setTopKey(topKey + 1)
    setAtTop(true)
  }
  const onTop = (top: boolean) => {
    setAtTop(top)
    if (top && !paused) showPending()
  }
  useShortcuts({
    j: () => step(1),
    k: () => step(-1),
    x: () => {
      const row = rows.find((one) => one.id === selected)
      if (row) selection.toggle(row, false)
    },
    Enter: () => {
      const row = rows.find((one) => one.id === cursor)
      if (row) open(row)
    },
    '/': () => queryBox.current?.focus(),
    ...(live && { ' ': togglePause }),
  })
  const more = useCallback(() => {
    if (list.hasNextPage && !list.isFetchingNextPage) void list.fetchNextPage()
  }, [list.hasNextPage, list.isFetchingNextPage, list.fetchNextPage])

  const failure: unknown = list.error
  const queryError = failure instanceof ApiError && failure.fields['query'] !== undefined ? failure : null
  const facets = <Facets query={text} effective={effective} from={bounds.from} to={bounds.span === null ? bounds.to : undefined} onQuery={setQuery} />
  return (
    <WithLogDrawer logId={search.log} words={words} tab={search.tab ?? 'conversation'} onTab={(tab) => set({ tab }, true)} onClose={() => set({ log: undefined, tab: undefined })}>
      <Page fixed title="Logs" beside={live && !queryError && <LiveBadge state={state} paused={paused} />}>
        <div className="flex flex-col gap-2 px-4 pb-2">
          <QueryBox value={text} onChange={setQuery} error={queryError} inputRef={queryBox} />
          <Toolbar
            facets={{ open: wide ? prefs.facets === 'open' : filtersOpen, onToggle: () => (wide ? setLogsPrefs({ facets: prefs.facets === 'open' ? 'closed' : 'open' }) : setFiltersOpen(true)) }}
            own={{ own: search.own, blocked: hasField(text, 'source'), onChange: (own) => set({ own }) }}
            pause={live ? { paused, onToggle: togglePause } : null}
            onGroup={(by) => void navigate({ to: '/usage', search: { by, query: text || undefined, own: search.own } })}
            onExport={() => setExporting([])}
            onAlert={() => void navigate({ to: '/alerts', search: { new: 'yes', query: effective || undefined } })}
            onLimit={() => void navigate({ to: '/org/limits', search: limitOf(text, keys.data?.keys ?? []) })}
            onReplay={replay}
            end={<ColumnsMenu columns={all} width={width} prefs={prefs} onChange={setLogsPrefs} />}
          >
            <ViewsMenu
              page="logs"
              standard={STANDARD_VIEWS}
              current={viewSearchOf(search)}
              columns={columns.map((column) => column.key)}
              browser={{ views: prefs.views[orgId] ?? [], onChange: (views) => setLogsPrefs({ views: { ...prefs.views, [orgId]: views } }) }}
              onOpen={openView}
            />
          </Toolbar>
        </div>
        {!queryError && <VolumeChart query={effective} range={bounds} live={bounds.span !== null} onRange={(from, to) => set({ from, to, range: undefined })} />}
        <div ref={box} className="flex min-h-0 flex-1">
          {showSidebar && !queryError && (
            <aside aria-label="Filters" className="w-56 shrink-0 overflow-y-auto border-r border-line bg-surface" tabIndex={0}>
              {facets}
            </aside>
          )}
          <div className="relative flex min-h-0 min-w-0 flex-1 flex-col">
            {queryError ? null : list.isError ? (
              <div className="p-4">
                <ErrorPanel error={list.error} what="the logs" onRetry={() => void list.refetch()} />
              </div>
            ) : !list.data ? (
              <SkeletonRows rows={16} height={ROW_HEIGHT[density]} />
            ) : rows.length === 0 ? (
              text === '' ? <LogsEmpty /> : <NoMatch what="requests" onClear={clear} chips={<code className="rounded-sm bg-sunken px-2 py-1 break-all">{text}</code>} />
            ) : (
              <SearchHits words={words}>
                <VirtualTable
                  label="Requests"
                  columns={columns}
                  rows={rows}
                  rowId={(row) => row.id}
                  rowHeight={ROW_HEIGHT[density]}
                  rowCount={list.hasNextPage ? -1 : rows.length + 1}
                  selected={selected}
                  onOpen={open}
                  onMove={move}
                  onEnd={more}
                  onTop={onTop}
                  topKey={topKey}
                  order={order}
                  onOrder={(field) => set({ sort: nextSort(order, field as SortField) })}
                  onResize={(key, size) => setLogsPrefs({ widths: { ...prefs.widths, [key]: size } })}
                  secondLine={inputLine(columns, width)}
                  choice={{ ids: selection.ids, label: (row) => `Select request ${row.id}`, onToggle: selection.toggle, onToggleAll: selection.toggleAll }}
                  fresh={(row) => latest.has(row.id)}
                  footer={list.isFetchingNextPage ? <SkeletonRows rows={2} height={ROW_HEIGHT[density]} /> : undefined}
                />
              </SearchHits>
            )}
            <Announcer total={received} />
            {pending.length > 0 && (
              <button type="button" className="chip absolute top-9 left-1/2 z-20 min-h-7 -translate-x-1/2 border-accent bg-accent text-on-accent shadow-float" onClick={jumpToTop}>
                {pending.length} new
              </button>
            )}
            <PartialNote page={lastPage} busy={list.isFetchingNextPage} onMore={more} />
          </div>
        </div>
        {queryError ? null : selection.chosen.length > 0 ? (
          <SelectionBar rows={selection.chosen} ids={selection.ids} isAllLoaded={selection.chosen.length === rows.length} query={query} onExport={setExporting} onReplay={replay} onClear={selection.clear} />
        ) : (
          <p className="flex items-center gap-3 border-t border-line bg-surface px-4 py-1 text-xs text-muted tabular-nums">
            {plural(rows.length, 'row')} loaded{list.hasNextPage ? ', more below' : ''}
          </p>
        )}
        <Dialog open={filtersOpen && !wide} size="sm" title="Filters" onClose={() => setFiltersOpen(false)}>
          {facets}
        </Dialog>
        {exporting && <ExportDialog query={query} selected={exporting} onClose={() => setExporting(null)} />}
      </Page>
    </WithLogDrawer>
  )
}
