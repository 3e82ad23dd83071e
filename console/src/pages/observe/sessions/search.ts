/** Search parameters of the session pages. */
import { joinTerms, term, type OwnCalls } from '@/lib/query'
import { integer, oneOf, text, type RawSearch } from '@/lib/search'
import { LOG_TABS, type LogTab } from '../log/tabs'

export interface SessionsSearch {
  /** A query of the query language; a session is listed if one of its requests matches. */
  query?: string
  own?: OwnCalls
}

export const SESSION_VIEWS = ['conversation', 'timeline'] as const
export type SessionView = (typeof SESSION_VIEWS)[number]

export interface SessionSearch {
  view?: SessionView
  log?: number
  tab?: LogTab
}

export function readSessionsSearch(search: RawSearch): SessionsSearch {
  const [user, provider] = [text(search['user']), text(search['provider'])]
  return {
    query: joinTerms(text(search['query']), user && term('user', user), provider && term('provider', provider)) || undefined,
    own: oneOf(search['own'], ['show'] as const),
    // Parameters of earlier versions: bookmarks go on working.
    ...{ user: undefined, provider: undefined },
  }
}

export function readSessionSearch(search: RawSearch): SessionSearch {
  return { view: oneOf(search['view'], SESSION_VIEWS), log: integer(search['log']), tab: oneOf(search['tab'], LOG_TABS) }
}
