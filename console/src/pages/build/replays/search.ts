/** Search parameters of the replay pages. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'

export const ROW_FILTERS = ['lost', 'gained', 'errors'] as const
export type RowFilter = (typeof ROW_FILTERS)[number]

/** More ids would make the address too long. */
export const MAX_LOG_IDS = 200

export interface NewReplaySearch {
  /** Ids of log rows, separated by commas. */
  logs?: string
  /** A query that selects the rows. */
  query?: string
}

export interface ReplaySearch {
  /** Log id of the row in the drawer. */
  row?: number
  only?: RowFilter
}

export function readNewReplaySearch(search: RawSearch): NewReplaySearch {
  return { logs: text(search['logs']), query: text(search['query']) }
}

export function readReplaySearch(search: RawSearch): ReplaySearch {
  return { row: integer(search['row']), only: oneOf(search['only'], ROW_FILTERS) }
}
