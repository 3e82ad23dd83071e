/** Three-way merge of texts. */
import { applyPatch, structuredPatch } from 'diff'

/** Applies the changes from `base` to `mine` on top of `theirs`; null on a conflict. */
export function rebase(base: string, mine: string, theirs: string): string | null {
  const result = applyPatch(theirs, structuredPatch('', '', base, mine, '', '', { context: 1 }))
  return result === false ? null : result
}
