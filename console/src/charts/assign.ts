/** Colors of the names in one view. Apart from `colors`, which is part of the first load. */
import { colorsOf, OTHER_COLOR, SERIES_COLOR_COUNT } from './colors'

/** One assignment for all parts of a view: a color of its own for each of the first five names, and one for all others. */
export function assignColors(names: Iterable<string | null>): (name: string | null) => string {
  const named = [...new Set(names)].filter((name) => name !== null).slice(0, SERIES_COLOR_COUNT)
  const colors = colorsOf(named)
  return (name) => (name === null ? undefined : colors[named.indexOf(name)]) ?? OTHER_COLOR
}

/** The same for names that come one by one, such as those of a list that grows: what has a color keeps it. */
export function growingColors(): (name: string) => string {
  const given = new Map<string, string>()
  return (name) => {
    let color = given.get(name)
    if (color === undefined) {
      const free = given.size < SERIES_COLOR_COUNT
      color = (free ? colorsOf([...given.keys(), name]).at(-1) : undefined) ?? OTHER_COLOR
      given.set(name, color)
    }
    return color
  }
}

interface Ranked {
  key: string | null
  cost_usd: number | null
}

/** The groups that a chart of costs names: the five most expensive ones. Rows without a value of the group are part of the rest. */
export function namedGroups<Row extends Ranked>(rows: readonly Row[]): (Row & { key: string })[] {
  return rows
    .filter((row): row is Row & { key: string } => row.key !== null && (row.cost_usd ?? 0) > 0)
    .toSorted((a, b) => (b.cost_usd ?? 0) - (a.cost_usd ?? 0))
    .slice(0, SERIES_COLOR_COUNT)
}
