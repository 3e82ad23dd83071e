import { api } from '@/api/client'
import type { RowQuery } from './exportFile'

/** How many rows match; null while that is not known, or if there are too many to count. */
export function useMatching({ sort: _, ...query }: RowQuery, enabled: boolean): number | null {
  const counted = api.useQuery('get', '/api/v1/logs/facets', { params: { query: { ...query, fields: 'status', limit: 1 } } }, { enabled, retry: false, meta: { quiet: true } })
  return counted.data && !counted.data.partial ? counted.data.rows : null
}
