/** Pass rates of runs over time, grouped by what was judged. */
import { runTitle } from './runs'

interface FinishedRun {
  id: number
  status: string
  passed: number
  failed: number
  created_at: string
  target?: unknown
  dataset_id: string | null
  dataset_version: number | null
}

export interface RatePoint {
  id: number
  /** Position among all runs, oldest first: runs are often minutes apart and then nothing for weeks. */
  at: number
  time: string
  rate: number
  name: string
}

/** More lines cannot be told apart; the others share one. */
const MAX_SERIES = 5
const OTHERS = 'others'

/** The latest `max` finished runs with verdicts. */
export function passRatePoints<Run extends FinishedRun>(newestFirst: readonly Run[], max: number, datasetName: (run: Run) => string | undefined): { series: { name: string; points: RatePoint[] }[]; count: number } {
  const judged = newestFirst.filter((run) => run.status === 'completed' && run.passed + run.failed > 0).slice(0, max).toReversed()
  const groups = new Map<string, RatePoint[]>()
  judged.forEach((run, at) => {
    const title = runTitle(run, datasetName(run))
    const name = groups.has(title) || groups.size < MAX_SERIES - 1 ? title : OTHERS
    const points = groups.get(name) ?? []
    points.push({ id: run.id, at, time: run.created_at, rate: run.passed / (run.passed + run.failed), name: title })
    groups.set(name, points)
  })
  return { series: [...groups].map(([name, points]) => ({ name, points })), count: judged.length }
}
