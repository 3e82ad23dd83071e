/** Diff between two sets of test cases, matched by id. */

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
  unchanged: number
}

export function diffCases<C extends Case>(before: readonly C[], after: readonly C[]): CaseDiff<C> {
  const previousById = new Map(before.map((one) => [one.id, one]))
  const nextIds = new Set(after.map((one) => one.id))
  const result: CaseDiff<C> = { added: [], removed: before.filter((one) => !nextIds.has(one.id)), changed: [], unchanged: 0 }
  for (const one of after) {
    const previous = previousById.get(one.id)
    if (!previous) result.added.push(one)
    else if (comparableText(previous) === comparableText(one)) result.unchanged += 1
    else result.changed.push({ before: previous, after: one })
  }
  return result
}

/** A case as indented JSON for a line diff. */
export function comparableText({ input, expected, metadata }: Case): string {
  return JSON.stringify({ input, expected, metadata }, null, 2)
}
