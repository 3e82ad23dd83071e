import { cx } from '@/lib/cx'

/** Loading placeholder. It appears after 150 ms so that fast responses do not flash. */
export function Skeleton({ className }: { className?: string }) {
  return <div className={cx('skeleton', className ?? 'h-4 w-full')} aria-hidden />
}

/** Loading placeholder of a table. */
export function SkeletonRows({ rows = 8, height = 36 }: { rows?: number; height?: number }) {
  return (
    <div role="status" aria-label="Loading" className="flex flex-col">
      {Array.from({ length: rows }, (_, at) => (
        <div key={at} className="flex items-center gap-6 border-b border-line px-3" style={{ height }}>
          <Skeleton className="h-3 w-24" />
          <Skeleton className="h-3 w-12" />
          <Skeleton className="h-3 flex-1" />
          <Skeleton className="h-3 w-16" />
        </div>
      ))}
    </div>
  )
}

export function SkeletonCards({ cards = 4, className = 'h-24' }: { cards?: number; className?: string }) {
  return (
    <div role="status" aria-label="Loading" className="grid grid-cols-[repeat(auto-fit,minmax(180px,1fr))] gap-3">
      {Array.from({ length: cards }, (_, at) => (
        <div key={at} className={cx('card p-3', className)}>
          <Skeleton className="h-3 w-20" />
          <Skeleton className="mt-3 h-6 w-28" />
        </div>
      ))}
    </div>
  )
}
