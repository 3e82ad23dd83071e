/** Search parameters of the prompt pages. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'

export interface PromptsSearch {
  q?: string
}

export interface PromptSearch {
  view?: 'diff' | 'use' | 'usage' | 'history'
  /** The displayed version; the latest if omitted. */
  v?: number
  /** The version to compare with. */
  base?: number
  split?: 'yes'
}

export function readPromptsSearch(search: RawSearch): PromptsSearch {
  return { q: text(search['q']) }
}

export function readPromptSearch(search: RawSearch): PromptSearch {
  return {
    view: oneOf(search['view'], ['diff', 'use', 'usage', 'history'] as const),
    v: integer(search['v']),
    base: integer(search['base']),
    split: oneOf(search['split'], ['yes'] as const),
  }
}
