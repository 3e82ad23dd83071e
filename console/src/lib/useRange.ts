import { useSearch } from '@tanstack/react-router'
import { useMemo } from 'react'
import { resolveRange, type Range, type RangeSearch } from './range'
import { useNow } from './useNow'

/** The time range of the URL; relative ranges follow the current time. */
export function useRange(): Range {
  const { from, to, range } = useSearch({ strict: false }) as RangeSearch
  const now = useNow(15_000)
  const resolved = resolveRange({ from, to, range }, now)
  return useMemo(() => resolved, [resolved.from, resolved.to, resolved.interval])
}
