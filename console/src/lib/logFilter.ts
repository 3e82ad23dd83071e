/** Client-side log filter. */
import type { components } from '@/api/schema'

type LogRow = components['schemas']['LogRow']

export interface LogFilter {
  provider?: string
  model?: string
  level?: LogRow['level']
  status?: string
  source?: LogRow['source']
  key_id?: string
  session_id?: string
  user?: string
}

/** Same rule as the server: a status is a number or a class such as `5xx`. */
export function matchesFilter(row: LogRow, filter: LogFilter): boolean {
  const status = filter.status && (/^\dxx$/.test(filter.status) ? String(row.status).startsWith(filter.status.slice(0, 1)) : row.status === Number(filter.status))
  return (
    status !== false &&
    (!filter.provider || row.provider === filter.provider) &&
    (!filter.model || row.model === filter.model) &&
    (!filter.level || row.level === filter.level) &&
    (!filter.source || row.source === filter.source) &&
    (!filter.key_id || row.key_id === filter.key_id) &&
    (!filter.session_id || row.session_id === filter.session_id) &&
    (!filter.user || row.user === filter.user)
  )
}
