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
  if (budget.spent_usd === null) return null
  const start = periodStart(budget)
  const length = Date.parse(budget.resets_at) - start
  const elapsed = (now - start) / length
  return elapsed < 0.02 || elapsed > 1 ? null : budget.spent_usd / elapsed
}

/** `scope_id` of a default that holds for each user. */
export const EVERY_USER = '*'

type UserScope = Pick<Budget, 'scope' | 'scope_id'>

/** The budgets that hold for a user: its own if it has any, else the defaults. */
export function budgetsOfUser<B extends UserScope>(budgets: readonly B[], user: string): B[] {
  const ofUsers = budgets.filter((budget) => budget.scope === 'user')
  const own = ofUsers.filter((budget) => budget.scope_id === user && user !== EVERY_USER)
  return own.length > 0 ? own : ofUsers.filter((budget) => budget.scope_id === EVERY_USER)
}
