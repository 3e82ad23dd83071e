/** How a budget will end, going by how it went so far. */

export interface Spending {
  period: 'daily' | 'weekly' | 'monthly'
  spent_usd: number
  resets_at: string
}

const DAY_MS = 86_400_000
/** Before this share of the period has passed, a projection would say more about chance than about habit. */
const TOO_EARLY = 0.02

/** When the current period began. Months are those of the calendar, in UTC. */
export function periodStart({ period, resets_at }: Pick<Spending, 'period' | 'resets_at'>): number {
  const end = new Date(resets_at)
  if (period === 'daily') return end.getTime() - DAY_MS
  if (period === 'weekly') return end.getTime() - 7 * DAY_MS
  return Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, 1)
}

/** What will be spent when the period ends, if it goes on like this; null while it is too early to tell. */
export function projected(spending: Spending, now: number): number | null {
  const start = periodStart(spending)
  const share = (now - start) / (Date.parse(spending.resets_at) - start)
  return share < TOO_EARLY || share > 1 ? null : spending.spent_usd / share
}
