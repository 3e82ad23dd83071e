/** Search parameters of the alerts page. */
import { oneOf, text, type RawSearch } from '@/lib/search'

export interface AlertsSearch {
  /** Id of the alert whose history is shown. */
  alert?: string
  /** Whether the form for a new alert is open. */
  new?: 'yes'
  /** The query of the new alert. */
  query?: string
}

export function readAlertsSearch(search: RawSearch): AlertsSearch {
  return { alert: text(search['alert']), new: oneOf(search['new'], ['yes'] as const), query: text(search['query']) }
}
