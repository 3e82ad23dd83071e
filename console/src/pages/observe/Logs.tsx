import { getRouteApi } from '@tanstack/react-router'
import { Columns3, Download, Pause, Play } from 'lucide-react'
import { useCallback, useMemo, useRef, useState } from 'react'
import { api } from '@/api/client'
import type { LogRow } from '@/api/logs'
import { useWidth } from '@/charts/useWidth'
import { download } from '@/lib/download'
import { plural } from '@/lib/format'
import { ROW_HEIGHT, setPrefs, usePrefs, type Density } from '@/lib/prefs'
import type { RangeSearch } from '@/lib/range'
import { useShortcuts } from '@/lib/shortcuts'
import { Button, ErrorPanel, FilterChips, FilterMenu, Input, Menu, MenuChoice, MenuLabel, MenuLine, NoMatch, Page, SkeletonRows } from '@/ui'
import { VirtualTable } from '@/ui/VirtualTable'
import { WithLogDrawer } from './log/LogDrawer'
import { Announcer } from './logs/Announcer'
import { visibleColumns, logColumns } from './logs/columns'
import { LiveBadge } from './logs/LiveBadge'
import { LogsEmpty } from './logs/LogsEmpty'
import { FILTERS, type LogsSearch } from './logs/search'
import { useFilters } from './logs/useFilters'
import { useLogRows } from './logs/useLogRows'
import { VolumeBar } from './logs/VolumeBar'

const route = getRouteApi('/shell/logs')

export function Logs() {
  const search: LogsSearch & RangeSearch = route.useSearch()
  const navigate = route.useNavigate()
  const prefs = usePrefs()
  const [box, width] = useWidth<HTMLDivElement>(1000)
  const [paused, setPaused] = useState(false)
  const [atTop, setAtTop] = useState(true)
  const [topKey, setTopKey] = useState(0)
  const [cursor, setCursor] = useState<number | null>(null)
  const searchField = useRef<HTMLInputElement>(null)
  const { list, rows, pending, latest, received, live, state, bounds, showPending } = useLogRows(search, paused || !atTop)
  const keys = api.useQuery('get', '/api/v1/keys', { params: { query: { limit: 200 } } }, { staleTime: 60_000 })
  const filters = useFilters(search, keys.data?.keys ?? [])

  const set = useCallback(
    (change: Partial<LogsSearch & RangeSearch>, replace = false) => void navigate({ search: (before) => ({ ...before, ...change }), replace }),
    [navigate],
  )
  const clear = () => set(Object.fromEntries(FILTERS.map((name) => [name, undefined])))
  const filtered = FILTERS.some((name) => search[name] !== undefined)

  const all = useMemo(() => logColumns({ zone: prefs.zone, keyName: (id) => keys.data?.keys.find((key) => key.id === id)?.name ?? id.slice(0, 8) }), [prefs.zone, keys.data])
  const columns = visibleColumns(all, width, prefs.hiddenColumns)

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
    Enter: () => {
      const row = rows.find((one) => one.id === cursor)
      if (row) open(row)
    },
    '/': () => searchField.current?.focus(),
    ' ': togglePause,
  })
  const onEnd = useCallback(() => {
    if (list.hasNextPage && !list.isFetchingNextPage) void list.fetchNextPage()
  }, [list.hasNextPage, list.isFetchingNextPage, list.fetchNextPage])

  return (
    <WithLogDrawer logId={search.log} tab={search.tab ?? 'conversation'} onTab={(tab) => set({ tab }, true)} onClose={() => set({ log: undefined, tab: undefined })}>
      <Page
        fixed
        title="Logs"
        beside={live && <LiveBadge state={state} paused={paused} />}
        actions={
          <>
            <form
              role="search"
              onSubmit={(event) => {
                event.preventDefault()
                set({ q: searchField.current?.value.trim() || undefined })
              }}
            >
              <Input ref={searchField} key={search.q ?? ''} type="search" aria-label="Words in bodies" placeholder="Words in bodies  /" defaultValue={search.q ?? ''} className="w-48" onBlur={(event) => event.target.value.trim() !== (search.q ?? '') && set({ q: event.target.value.trim() || undefined })} />
            </form>
            <FilterMenu filters={filters} onChange={(name, value) => set({ [name]: value })} />
            {live && (
              <Button icon={paused ? <Play size={14} aria-hidden /> : <Pause size={14} aria-hidden />} onClick={togglePause} title="Space">
                {paused ? 'Go on' : 'Pause'}
              </Button>
            )}
            <Menu trigger={<Button square aria-label="Columns and density" icon={<Columns3 size={14} aria-hidden />} />}>
              <MenuLabel>Rows</MenuLabel>
              {(Object.keys(ROW_HEIGHT) as Density[]).map((density) => (
                <MenuChoice key={density} checked={prefs.density === density} onSelect={() => setPrefs({ density })}>
                  {density}
                </MenuChoice>
              ))}
              <MenuLine />
              <MenuLabel>Columns</MenuLabel>
              {all.map((column) => (
                <MenuChoice key={column.key} checked={!prefs.hiddenColumns.includes(column.key)} onSelect={() => setPrefs({ hiddenColumns: toggled(prefs.hiddenColumns, column.key) })}>
                  {column.header}
                </MenuChoice>
              ))}
            </Menu>
            <Button square aria-label="Download what is loaded as JSON lines" title="Download what is loaded as JSON lines" blocked={rows.length === 0 && 'Nothing is loaded'} icon={<Download size={14} aria-hidden />} onClick={() => download('logs.jsonl', 'application/x-ndjson', rows.map((row) => JSON.stringify(row)).join('\n'))} />
          </>
        }
      >
        {filtered && (
          <div className="flex flex-wrap items-center gap-1 px-4 pb-2">
            <FilterChips filters={filters} onChange={(name, value) => set({ [name]: value })} />
            <Button size="sm" kind="ghost" onClick={clear}>
              Clear
            </Button>
          </div>
        )}
        <VolumeBar search={search} range={bounds} onRange={(from, to) => set({ from, to, range: undefined })} />
        <div ref={box} className="relative flex min-h-0 flex-1 flex-col">
          {list.isError ? (
            <div className="p-4">
              <ErrorPanel error={list.error} what="the logs" onRetry={() => void list.refetch()} />
            </div>
          ) : !list.data ? (
            <SkeletonRows rows={16} height={ROW_HEIGHT[prefs.density]} />
          ) : rows.length === 0 ? (
            filtered ? <NoMatch what="requests" chips={<FilterChips filters={filters} onChange={(name, value) => set({ [name]: value })} />} onClear={clear} /> : <LogsEmpty />
          ) : (
            <VirtualTable
              label="Requests"
              columns={columns}
              rows={rows}
              rowId={(row) => row.id}
              rowHeight={ROW_HEIGHT[prefs.density]}
              rowCount={list.hasNextPage ? -1 : rows.length + 1}
              selected={selected}
              onOpen={open}
              onMove={move}
              onEnd={onEnd}
              onTop={onTop}
              topKey={topKey}
              fresh={(row) => latest.has(row.id)}
              footer={list.isFetchingNextPage ? <SkeletonRows rows={2} height={ROW_HEIGHT[prefs.density]} /> : undefined}
            />
          )}
          <Announcer total={received} />
          {pending.length > 0 && (
            <button type="button" className="chip absolute top-9 left-1/2 z-20 min-h-7 -translate-x-1/2 border-accent bg-accent text-on-accent shadow-float" onClick={jumpToTop}>
              {pending.length} new
            </button>
          )}
        </div>
        <p className="flex items-center gap-3 border-t border-line bg-surface px-4 py-1 text-xs text-muted tabular-nums">
          {plural(rows.length, 'row')} loaded{list.hasNextPage ? ', more below' : ''}
        </p>
      </Page>
    </WithLogDrawer>
  )
}

function toggled(names: readonly string[], name: string): string[] {
  return names.includes(name) ? names.filter((other) => other !== name) : [...names, name]
}
