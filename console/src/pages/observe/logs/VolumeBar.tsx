import { useState, type PointerEvent } from 'react'
import { api } from '@/api/client'
import { pollingOptions } from '@/api/query'
import { useWidth } from '@/charts/useWidth'
import { plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { INTERVAL_MS, type Range } from '@/lib/range'
import type { LogsSearch } from './search'

const HEIGHT = 48

interface VolumeBarProps {
  search: LogsSearch
  range: Range
  onRange(from: string, to: string): void
}

/** Request volume, with errors stacked on top. Dragging selects a time range. */
export function VolumeBar({ search, range, onRange }: VolumeBarProps) {
  const { zone } = usePrefs()
  const [ref, width] = useWidth<HTMLDivElement>(800)
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null)
  const { provider, model, key_id } = search
  const series = api.useQuery('get', '/api/v1/usage/timeseries', { params: { query: { provider, model, key_id, from: range.from, to: range.to, interval: range.interval } } }, pollingOptions(5000))
  const buckets = series.data?.buckets ?? []
  const maxRequests = Math.max(1, ...buckets.map((bucket) => bucket.requests))
  const slot = buckets.length > 0 ? width / buckets.length : width
  const step = INTERVAL_MS[range.interval]
  const total = buckets.reduce((sum, bucket) => sum + bucket.requests, 0)
  const errors = buckets.reduce((sum, bucket) => sum + bucket.errors, 0)
  const at = (event: PointerEvent) => Math.min(buckets.length - 1, Math.max(0, Math.floor((event.clientX - (ref.current?.getBoundingClientRect().left ?? 0)) / slot)))
  const finish = () => {
    const [first, last] = drag ? [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)] : [0, 0]
    const firstBucket = buckets[first]
    const end = buckets[last]
    if (drag && firstBucket && end) onRange(new Date(firstBucket.start).toISOString(), new Date(Date.parse(end.start) + step).toISOString())
    setDrag(null)
  }
  const summary = `${plural(total, 'request')}, ${plural(errors, 'error')}, ${time(range.from, zone)} to ${time(range.to, zone)}`
  return (
    <div ref={ref} className="relative h-12 shrink-0 border-y border-line bg-surface" title={search.status || search.user || search.session_id || search.level || search.source || search.q ? 'All requests of this provider, model and key' : undefined}>
      <svg
        role="img"
        aria-label={`Volume: ${summary}`}
        width={width}
        height={HEIGHT}
        className="absolute block cursor-crosshair touch-pan-y select-none"
        onPointerDown={(event) => {
          if (event.button !== 0 || buckets.length === 0) return
          event.currentTarget.setPointerCapture(event.pointerId)
          setDrag({ from: at(event), to: at(event) })
        }}
        onPointerMove={(event) => drag && setDrag({ ...drag, to: at(event) })}
        onPointerUp={finish}
        onPointerCancel={() => setDrag(null)}
      >
        {drag && <rect x={Math.min(drag.from, drag.to) * slot} width={(Math.abs(drag.to - drag.from) + 1) * slot} height={HEIGHT} className="fill-accent opacity-15" />}
        {buckets.map((bucket, index) => {
          const scale = (HEIGHT - 6) / maxRequests
          const errorHeight = bucket.errors > 0 ? Math.max(1.5, bucket.errors * scale) : 0
          const okHeight = bucket.requests > bucket.errors ? Math.max(1.5, (bucket.requests - bucket.errors) * scale) : 0
          const bar = { x: index * slot + 1, width: Math.max(1, slot - 2) }
          return (
            <g key={bucket.start}>
              <title>{`${time(bucket.start, zone)}: ${plural(bucket.requests, 'request')}, ${plural(bucket.errors, 'error')}`}</title>
              <rect {...bar} y={0} height={HEIGHT} fill="transparent" />
              <rect {...bar} y={HEIGHT - okHeight} height={okHeight} fill="var(--series-6)" />
              <rect {...bar} y={HEIGHT - okHeight - errorHeight} height={errorHeight} fill="var(--err)" />
            </g>
          )
        })}
      </svg>
    </div>
  )
}
