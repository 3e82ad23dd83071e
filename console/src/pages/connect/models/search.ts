/** Search parameters of the pages about named models. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'

export interface ModelsSearch {
  q?: string
}

export interface ModelSearch {
  view?: 'try' | 'use' | 'diff' | 'history'
  /** The displayed version; the latest if omitted. */
  v?: number
  /** The version to compare with. */
  base?: number
}

export function readModelsSearch(search: RawSearch): ModelsSearch {
  return { q: text(search['q']) }
}

export function readModelSearch(search: RawSearch): ModelSearch {
  return { view: oneOf(search['view'], ['try', 'use', 'diff', 'history'] as const), v: integer(search['v']), base: integer(search['base']) }
}
