/** Search parameters of the playground. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'

export interface PlaygroundSearch {
  /** Logged request to load. */
  log?: number
  /** Prompt to load: `namespace/name@version`. */
  prompt?: string
  /** Run or comparison of the history to load. */
  run?: string
  history?: 'open'
}

export function readPlaygroundSearch(search: RawSearch): PlaygroundSearch {
  return { log: integer(search['log']), prompt: text(search['prompt']), run: text(search['run']), history: oneOf(search['history'], ['open'] as const) }
}
