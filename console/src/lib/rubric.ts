/** Rubric scores, computed the same way as on the server. */

export const AXES = ['clarity', 'specificity', 'completeness', 'safety', 'originality'] as const

export type Weights = Readonly<Record<string, number>>

/** Weighted mean of the axis scores; a missing score counts as 0. */
export function weightedScore(weights: Weights, axes: Readonly<Record<string, { score: number }>>): number {
  const total = Object.values(weights).reduce((sum, weight) => sum + weight, 0)
  if (total <= 0) return 0
  const sum = Object.entries(weights).reduce((before, [axis, weight]) => before + weight * (axes[axis]?.score ?? 0), 0)
  return Math.round((sum / total) * 10_000) / 10_000
}

/** Weights scaled to a sum of 1. */
export function normalizeWeights(weights: Weights): Record<string, number> {
  const total = Object.values(weights).reduce((sum, weight) => sum + weight, 0)
  return Object.fromEntries(Object.entries(weights).map(([axis, weight]) => [axis, total <= 0 ? 0 : weight / total]))
}
