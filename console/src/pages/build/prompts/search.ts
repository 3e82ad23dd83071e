/** What the addresses of the prompts' pages can say. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'

export interface PromptsSearch {
  q?: string
}

export interface PromptSearch {
  view?: 'diff' | 'use'
  /** The version that is looked at; the latest when left out. */
  v?: number
  /** The version that it is compared with. */
  base?: number
  split?: 'yes'
}

export function readPromptsSearch(search: RawSearch): PromptsSearch {
  return { q: text(search['q']) }
}

export function readPromptSearch(search: RawSearch): PromptSearch {
  return {
    view: oneOf(search['view'], ['diff', 'use'] as const),
    v: integer(search['v']),
    base: integer(search['base']),
    split: oneOf(search['split'], ['yes'] as const),
  }
}
