import { useSearch } from '@tanstack/react-router'
import { useMemo } from 'react'
import { usePrefs } from './prefs'
import { resolveRange, type Range, type RangeSearch } from './range'
import { useNow } from './useNow'

/** The time range of the URL; relative ranges follow the current time. */
export function useRange(): Range {
  const { from, to, range } = useSearch({ strict: false }) as RangeSearch
  const { zone } = usePrefs()
  const now = useNow(15_000)
  const resolved = resolveRange({ from, to, range }, now, zone)
  return useMemo(() => resolved, [resolved.from, resolved.to, resolved.interval])
}
