import type { SavedView } from '@/lib/prefs'

/** Views that everybody has. */
export const STANDARD_VIEWS: readonly SavedView[] = [
  { name: 'All requests', search: {} },
  { name: 'Errors', search: { query: 'status:error' } },
  { name: 'Slowest', search: { sort: 'latency' } },
  { name: 'Most expensive', search: { sort: 'cost' } },
  { name: 'Retried', search: { query: 'attempts:>1' } },
  { name: 'Cache hits', search: { query: 'cache:hit' } },
]
