/** Budget periods and spend projection. */
import type { components } from '@/api/schema'

type Budget = components['schemas']['Budget']

/** Start of the current period, in UTC. */
export function periodStart(budget: Pick<Budget, 'period' | 'resets_at'>): number {
  const end = new Date(budget.resets_at)
  if (budget.period === 'daily') return end.getTime() - 86_400_000
  if (budget.period === 'weekly') return end.getTime() - 7 * 86_400_000
  return Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, end.getUTCDate())
}

/** Linear projection of the spend at the end of the period; null when less than 2% of it has elapsed. */
export function projectSpend(budget: Pick<Budget, 'period' | 'resets_at' | 'spent_usd'>, now: number): number | null {
  const start = periodStart(budget)
  const length = Date.parse(budget.resets_at) - start
  const elapsed = (now - start) / length
  return elapsed < 0.02 || elapsed > 1 ? null : budget.spent_usd / elapsed
}
