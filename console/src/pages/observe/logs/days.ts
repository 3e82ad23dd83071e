/** Where a day begins in a list by time. */
import type { Zone } from '@/lib/format'

interface Timed {
  id: number
  created_at: string
}

const dayOf = (at: string, zone: Zone): string => (zone === 'utc' ? new Date(at).toISOString().slice(0, 10) : new Date(at).toDateString())

/**
 * Whether a row is the first one of its day, below rows of another day. The ids of the rows must fall, or rise if
 * `ascending`. Only rows in sight are asked for, so each is found by halving.
 */
export function firstOfDay(rows: readonly Timed[], ascending: boolean, zone: Zone): (row: Timed) => boolean {
  const indexOf = (id: number): number => {
    let [low, high] = [0, rows.length - 1]
    while (low <= high) {
      const middle = (low + high) >> 1
      const found = rows[middle]?.id ?? id
      if (found === id) return middle
      if (found < id === ascending) low = middle + 1
      else high = middle - 1
    }
    return -1
  }
  return (row) => {
    const before = rows[indexOf(row.id) - 1]
    return before !== undefined && dayOf(before.created_at, zone) !== dayOf(row.created_at, zone)
  }
}
