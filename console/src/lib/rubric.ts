/** How the scores of axes come together, as the server adds them up. */

export const AXES = ['clarity', 'specificity', 'completeness', 'safety', 'originality'] as const

export type Weights = Readonly<Record<string, number>>

/** The weighted mean; an axis without a score counts as nothing. */
export function overall(weights: Weights, axes: Readonly<Record<string, { score: number }>>): number {
  const total = Object.values(weights).reduce((sum, weight) => sum + weight, 0)
  if (total <= 0) return 0
  const sum = Object.entries(weights).reduce((before, [axis, weight]) => before + weight * (axes[axis]?.score ?? 0), 0)
  return Math.round((sum / total) * 10_000) / 10_000
}

/** Each weight as its share of all. */
export function shares(weights: Weights): Record<string, number> {
  const total = Object.values(weights).reduce((sum, weight) => sum + weight, 0)
  return Object.fromEntries(Object.entries(weights).map(([axis, weight]) => [axis, total <= 0 ? 0 : weight / total]))
}
