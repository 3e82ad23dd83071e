/** Search parameters of the eval pages. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'
import { LOG_TABS, type LogTab } from '../../observe/log/tabs'

export const RUN_STATES = ['queued', 'running', 'completed', 'failed', 'cancelled'] as const

export interface EvalsSearch {
  view?: 'runs'
  q?: string
  status?: (typeof RUN_STATES)[number]
}

export interface RunSearch {
  /** Sort order: failures first, or in order of arrival. */
  order?: 'came'
  /** Id of the run to compare with. */
  with?: number
  /** Id of the verdict in the drawer. */
  item?: number
  /** Id of the request in the drawer. */
  log?: number
  tab?: LogTab
}

export interface ExperimentSearch {
  /** Ids of runs, separated by commas. */
  runs?: string
}

export function readEvalsSearch(search: RawSearch): EvalsSearch {
  return { view: oneOf(search['view'], ['runs'] as const), q: text(search['q']), status: oneOf(search['status'], RUN_STATES) }
}

export function readRunSearch(search: RawSearch): RunSearch {
  return { order: oneOf(search['order'], ['came'] as const), with: integer(search['with']), item: integer(search['item']), log: integer(search['log']), tab: oneOf(search['tab'], LOG_TABS) }
}

export function readExperimentSearch(search: RawSearch): ExperimentSearch {
  return { runs: text(search['runs']) }
}
