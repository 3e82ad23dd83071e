import { colorsOf } from '@/charts/colors'
import { integer, percent } from '@/lib/format'
import type { TargetUsage } from './usage'

/** Which target serves how much, as one stacked bar. The list in its title is also its text for screen readers. */
export function TargetShares({ usage }: { usage: readonly TargetUsage[] }) {
  const total = usage.reduce((sum, target) => sum + target.requests, 0)
  const colors = colorsOf(usage.map((target) => target.name))
  if (total === 0) return <span className="text-muted">no requests</span>
  const text = usage.map((target) => `${target.name}: ${percent(target.requests / total)} (${integer(target.requests)})`).join('\n')
  return (
    <span className="flex h-2 w-28 overflow-hidden rounded-full bg-line" role="img" aria-label={text} title={text}>
      {usage.map((target, index) => (
        <span key={target.name} style={{ width: `${(target.requests / total) * 100}%`, background: colors[index] }} />
      ))}
    </span>
  )
}
