import { getRouteApi } from '@tanstack/react-router'
import { zoneNote } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Page, Tabs } from '@/ui'
import { Prices } from './usage/Prices'
import type { UsageSearch } from './usage/search'
import { Spend } from './usage/Spend'

const route = getRouteApi('/shell/usage')

/** Usage: spend by group, budgets and prices. */
export function Usage() {
  const search: UsageSearch = route.useSearch()
  const navigate = route.useNavigate()
  const { zone } = usePrefs()
  const set = (change: Partial<UsageSearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  return (
    <Page title="Usage" about={zoneNote(zone)}>
      <Tabs
        label="View"
        value={search.view ?? 'spend'}
        onChange={(view) => set({ view })}
        items={[
          { value: 'spend', label: 'Spend', content: <Spend by={search.by ?? 'model'} query={search.query ?? ''} own={search.own} sort={search.sort} onChange={set} /> },
          { value: 'prices', label: 'Prices', content: <Prices q={search.q ?? ''} onSearch={(q) => set({ q: q || undefined })} /> },
        ]}
      />
    </Page>
  )
}
