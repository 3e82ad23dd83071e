/** What the address of the playground can say. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'

export interface PlaygroundSearch {
  /** A logged request to begin with. */
  log?: number
  /** A prompt to begin with: `namespace/name@version`. */
  prompt?: string
  /** A run or a comparison of the history. */
  run?: string
  history?: 'open'
}

export function readPlaygroundSearch(search: RawSearch): PlaygroundSearch {
  return { log: integer(search['log']), prompt: text(search['prompt']), run: text(search['run']), history: oneOf(search['history'], ['open'] as const) }
}
