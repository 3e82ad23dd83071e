/** Keys that another gateway made, and how much traffic still uses them. */
import type { Schemas } from '@/api/client'
import { isUsable } from '@/lib/keyState'

export interface ImportedTraffic {
  keys: number
  /** Keys with calls in the range. */
  inUse: number
  calls: number
}

/** Null if no key is imported. Keys that have ended no longer count. */
export function importedTraffic(keys: readonly Schemas['Key'][], rows: readonly Pick<Schemas['BreakdownRow'], 'key' | 'requests'>[], now: number): ImportedTraffic | null {
  const imported = keys.filter((key) => key.imported !== null && isUsable(key, now))
  if (imported.length === 0) return null
  const calls = new Map(rows.map((row) => [row.key, row.requests]))
  const counts = imported.map((key) => calls.get(key.id) ?? 0)
  return { keys: imported.length, inUse: counts.filter((count) => count > 0).length, calls: counts.reduce((sum, count) => sum + count, 0) }
}
