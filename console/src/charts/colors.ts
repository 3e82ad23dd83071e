/** Chart colors: errors have a fixed color, and each name has the same color on every page. */

export const ERROR_COLOR = 'var(--err)'
export const OTHER_COLOR = 'var(--series-6)'
export const SERIES_COLOR_COUNT = 5

/** Hashes a name to one of five colors. */
export function colorOf(name: string): string {
  let hash = 0
  for (const char of name) hash = (hash * 31 + (char.codePointAt(0) ?? 0)) >>> 0
  return `var(--series-${(hash % SERIES_COLOR_COUNT) + 1})`
}

/** Colors for the series of one chart. On a collision the later name gets the next free color. */
export function colorsOf(names: readonly string[]): string[] {
  const used = new Set<string>()
  return names.map((name) => {
    let color = colorOf(name)
    for (let attempt = 1; used.has(color) && attempt < SERIES_COLOR_COUNT; attempt++) color = next(color)
    used.add(color)
    return color
  })
}

function next(color: string): string {
  const number = Number(/\d/.exec(color)?.[0] ?? '0')
  return `var(--series-${(number % SERIES_COLOR_COUNT) + 1})`
}
