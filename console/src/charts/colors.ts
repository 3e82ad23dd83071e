/** Colours that mean something: failures are always the same one, and a name keeps its own on every page. */

export const ERROR_COLOR = 'var(--err)'
export const OTHER_COLOR = 'var(--series-6)'
const NAMED = 5

/** One of five colours, the same for the same name everywhere. */
export function colorOf(name: string): string {
  let hash = 0
  for (const char of name) hash = (hash * 31 + (char.codePointAt(0) ?? 0)) >>> 0
  return `var(--series-${(hash % NAMED) + 1})`
}

/** Colours for series that stand side by side: each name its own, and where two would be alike the later one the next free. */
export function colorsOf(names: readonly string[]): string[] {
  const taken = new Set<string>()
  return names.map((name) => {
    let color = colorOf(name)
    for (let turn = 1; taken.has(color) && turn < NAMED; turn++) color = next(color)
    taken.add(color)
    return color
  })
}

function next(color: string): string {
  const number = Number(/\d/.exec(color)?.[0] ?? '0')
  return `var(--series-${(number % NAMED) + 1})`
}
