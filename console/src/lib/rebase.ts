/** A change of a text made again on another text. */
import { applyPatch, structuredPatch } from 'diff'

/** What `mine` changed in `base`, done to `theirs`; null where both changed the same lines. */
export function rebase(base: string, mine: string, theirs: string): string | null {
  const result = applyPatch(theirs, structuredPatch('', '', base, mine, '', '', { context: 1 }))
  return result === false ? null : result
}
