/** Search parameters of the session pages. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'
import { LOG_TABS, type LogTab } from '../log/tabs'

export interface SessionsSearch {
  user?: string
  provider?: string
}

export const SESSION_VIEWS = ['conversation', 'timeline'] as const
export type SessionView = (typeof SESSION_VIEWS)[number]

export interface SessionSearch {
  view?: SessionView
  log?: number
  tab?: LogTab
}

export function readSessionsSearch(search: RawSearch): SessionsSearch {
  return { user: text(search['user']), provider: text(search['provider']) }
}

export function readSessionSearch(search: RawSearch): SessionSearch {
  return { view: oneOf(search['view'], SESSION_VIEWS), log: integer(search['log']), tab: oneOf(search['tab'], LOG_TABS) }
}
