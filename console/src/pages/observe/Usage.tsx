import { getRouteApi } from '@tanstack/react-router'
import { zoneNote } from '@/lib/format'
import { usePrefs, type SavedView } from '@/lib/prefs'
import type { RangeSearch } from '@/lib/range'
import { viewSearchOf } from '@/lib/views'
import { Page, Tabs } from '@/ui'
import { Prices } from './usage/Prices'
import type { UsageSearch } from './usage/search'
import { Spend } from './usage/Spend'
import { ViewsMenu } from './views/ViewsMenu'

const route = getRouteApi('/shell/usage')

const STANDARD_VIEWS: readonly SavedView[] = [
  { name: 'All requests', search: {} },
  { name: 'Failed requests', search: { query: 'status:error' } },
]

/** Usage: spend by group, budgets and prices. */
export function Usage() {
  const search: UsageSearch & RangeSearch = route.useSearch()
  const navigate = route.useNavigate()
  const { zone } = usePrefs()
  const set = (change: Partial<UsageSearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  const views = (
    <ViewsMenu
      page="usage"
      standard={STANDARD_VIEWS}
      // The page groups by model unless the address says otherwise.
      current={viewSearchOf({ ...search, by: search.by ?? 'model' })}
      onOpen={(next) => void navigate({ search: ({ by }) => ({ by, ...(search.range && { range: search.range }), ...next }) })}
    />
  )
  return (
    <Page title="Usage" about={zoneNote(zone)}>
      <Tabs
        label="View"
        value={search.view ?? 'spend'}
        onChange={(view) => set({ view })}
        items={[
          { value: 'spend', label: 'Spend', content: <Spend by={search.by ?? 'model'} query={search.query ?? ''} own={search.own} sort={search.sort} onChange={set} views={views} /> },
          { value: 'prices', label: 'Prices', content: <Prices q={search.q ?? ''} onSearch={(q) => set({ q: q || undefined })} /> },
        ]}
      />
    </Page>
  )
}
