/** What changed from one set of test cases to another, told by their ids. */

interface Case {
  id: string
  input: unknown
  expected: unknown
  metadata: unknown
}

export interface CaseDiff<C extends Case> {
  added: C[]
  removed: C[]
  changed: { before: C; after: C }[]
  same: number
}

export function diffCases<C extends Case>(before: readonly C[], after: readonly C[]): CaseDiff<C> {
  const earlier = new Map(before.map((one) => [one.id, one]))
  const later = new Set(after.map((one) => one.id))
  const result: CaseDiff<C> = { added: [], removed: before.filter((one) => !later.has(one.id)), changed: [], same: 0 }
  for (const one of after) {
    const was = earlier.get(one.id)
    if (!was) result.added.push(one)
    else if (contentOf(was) === contentOf(one)) result.same += 1
    else result.changed.push({ before: was, after: one })
  }
  return result
}

/** A case as a text that can be compared line by line. */
export function contentOf({ input, expected, metadata }: Case): string {
  return JSON.stringify({ input, expected, metadata }, null, 2)
}
