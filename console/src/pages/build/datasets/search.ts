/** Search parameters of the dataset pages. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'

export interface DatasetsSearch {
  q?: string
}

export interface DatasetSearch {
  view?: 'versions' | 'runs'
  /** A frozen version; the working copy if omitted. */
  version?: number
  /** Base version of the diff with `version`. */
  base?: number
  /** Id of the case in the drawer, or `new`. */
  case?: string
}

export function readDatasetsSearch(search: RawSearch): DatasetsSearch {
  return { q: text(search['q']) }
}

export function readDatasetSearch(search: RawSearch): DatasetSearch {
  return {
    view: oneOf(search['view'], ['versions', 'runs'] as const),
    version: integer(search['version']),
    base: integer(search['base']),
    case: text(search['case']),
  }
}
