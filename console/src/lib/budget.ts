/** Will it hold? */
import type { components } from '@/api/schema'

type Budget = components['schemas']['Budget']

/** When the period began; months are as long as they are. All in UTC. */
export function periodStart(budget: Pick<Budget, 'period' | 'resets_at'>): number {
  const end = new Date(budget.resets_at)
  if (budget.period === 'daily') return end.getTime() - 86_400_000
  if (budget.period === 'weekly') return end.getTime() - 7 * 86_400_000
  return Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, end.getUTCDate())
}

/** What will have been spent by the end, if it goes on as it did so far; null while it is too early to tell. */
export function projected(budget: Pick<Budget, 'period' | 'resets_at' | 'spent_usd'>, now: number): number | null {
  const start = periodStart(budget)
  const length = Date.parse(budget.resets_at) - start
  const passed = (now - start) / length
  return passed < 0.02 || passed > 1 ? null : budget.spent_usd / passed
}
