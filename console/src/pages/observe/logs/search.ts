/** Search parameters of the logs page. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'
import type { LogFilter } from '@/lib/logFilter'
import { LOG_TABS, type LogTab } from '../log/tabs'

export interface LogsSearch extends LogFilter {
  q?: string
  /** Id of the request in the drawer. */
  log?: number
  tab?: LogTab
}

export const LEVELS = ['info', 'warn', 'error'] as const
export const SOURCES = ['proxy', 'api', 'otel'] as const
export const FILTERS = ['provider', 'model', 'status', 'level', 'source', 'key_id', 'user', 'session_id', 'q'] as const

export function readLogsSearch(search: RawSearch): LogsSearch {
  return {
    provider: text(search['provider']),
    model: text(search['model']),
    status: statusOf(search['status']),
    level: oneOf(search['level'], LEVELS),
    source: oneOf(search['source'], SOURCES),
    key_id: text(search['key_id']),
    user: text(search['user']),
    session_id: text(search['session_id']),
    q: text(search['q']),
    log: integer(search['log']),
    tab: oneOf(search['tab'], LOG_TABS),
  }
}

/** The filters that can be evaluated on the client. Full-text search is done by the server. */
export function filterOf({ provider, model, status, level, source, key_id, user, session_id }: LogsSearch): LogFilter {
  return { provider, model, status, level, source, key_id, user, session_id }
}

function statusOf(value: unknown): string | undefined {
  const raw = text(value)
  return raw && /^[1-5](xx|\d\d)$/.test(raw) ? raw : undefined
}
