import { api, type Schemas } from '@/api/client'
import type { Filter } from '@/ui'
import { LEVELS, SOURCES, type LogsSearch } from './search'

const STATUSES = [
  { value: '2xx', label: '2xx ok' },
  { value: '4xx', label: '4xx refused' },
  { value: '5xx', label: '5xx error' },
  { value: '429', label: '429 too many' },
  { value: '499', label: '499 caller hung up' },
]

/** Filter definitions of the logs page, with their options. */
export function useFilters(search: LogsSearch, keys: readonly Schemas['Key'][]): Filter[] {
  const used = api.useQuery('get', '/api/v1/metrics', {}, { staleTime: 60_000 })
  // The same URL serves Prometheus text by content negotiation.
  const seen = typeof used.data === 'object' ? used.data : undefined
  const names = (map: Record<string, unknown> | undefined) => Object.keys(map ?? {}).map((name) => ({ value: name, label: name }))
  return [
    { name: 'provider', label: 'Provider', value: search.provider, options: names(seen?.providers) },
    { name: 'model', label: 'Model', value: search.model, options: names(seen?.models) },
    { name: 'status', label: 'Status', value: search.status, options: STATUSES },
    { name: 'level', label: 'Level', value: search.level, closed: true, options: LEVELS.map((level) => ({ value: level, label: level })) },
    { name: 'source', label: 'Source', value: search.source, closed: true, options: SOURCES.map((source) => ({ value: source, label: source })) },
    { name: 'key_id', label: 'Key', value: search.key_id, closed: true, options: keys.map((key) => ({ value: key.id, label: `${key.name} (${key.key_prefix}…)` })) },
    { name: 'user', label: 'User', value: search.user },
    { name: 'session_id', label: 'Session', value: search.session_id },
    { name: 'q', label: 'Words', value: search.q },
  ]
}
