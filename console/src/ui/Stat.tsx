import { ArrowDown, ArrowUp } from 'lucide-react'
import type { ReactNode } from 'react'
import { cx } from '@/lib/cx'

interface StatProps {
  label: string
  value: ReactNode
  /** Relative change against the previous period: 0.12 is +12%. Null if there is nothing to compare with. */
  change?: number | null
  /** Whether an increase is good, bad or neutral. */
  more?: 'good' | 'bad' | 'neither'
  note?: ReactNode
}

/** A key metric with its change. */
export function Stat({ label, value, change, more = 'neither', note }: StatProps) {
  const up = (change ?? 0) > 0
  const Arrow = up ? ArrowUp : ArrowDown
  const tone = more === 'neither' ? 'text-muted' : up === (more === 'good') ? 'text-ok' : 'text-err'
  return (
    <div className="card min-w-0 px-3 py-2.5">
      <div className="text-xs text-muted">{label}</div>
      <div className="mt-0.5 text-xl leading-8 font-semibold whitespace-nowrap tabular-nums">{value}</div>
      <div className="flex min-h-4 flex-wrap items-center gap-x-2 text-xs text-muted">
        {change !== undefined && change !== null && Math.abs(change) >= 0.0005 && (
          <span className={cx('inline-flex items-center gap-0.5 tabular-nums', tone)}>
            <Arrow size={12} aria-hidden />
            <span className="sr-only">{up ? 'up' : 'down'}</span>
            {change > 9.995 ? `×${(change + 1).toFixed(0)}` : `${Math.abs(change * 100).toFixed(Math.abs(change) < 0.1 ? 1 : 0)}%`}
          </span>
        )}
        {note}
      </div>
    </div>
  )
}
