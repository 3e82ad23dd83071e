import { Link } from '@tanstack/react-router'
import { api, type Schemas } from '@/api/client'
import { ChartFrame } from '@/charts/ChartFrame'
import { colorsOf } from '@/charts/colors'
import { Axis } from '@/charts/plot'
import { useWidth } from '@/charts/useWidth'
import { percent, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { passRatePoints } from '@/lib/passRates'
import { passRate, useDatasetNames } from './RunList'

const HEIGHT = 170
const LEFT = 42
const TOP = 8
const BOTTOM = 20
const RIGHT = 12
/** Points are links, so each needs room for a finger. */
const SLOT = 26

/** Pass rate of the finished runs of an eval, oldest first, with one line for each target. A point opens its run. */
export function PassRateChart({ evalId }: { evalId: number }) {
  // The limit is that of the list of runs to compare with, so that both share one request.
  const runs = api.useQuery('get', '/api/v1/evals/runs', { params: { query: { eval_id: evalId, limit: 100 } } })
  const finished = runs.data?.runs.filter((run) => run.status === 'completed' && passRate(run) !== null) ?? []
  return finished.length < 2 ? null : <Chart runs={finished} />
}

function Chart({ runs }: { runs: readonly Schemas['EvalRun'][] }) {
  const { zone } = usePrefs()
  const [ref, width] = useWidth<HTMLDivElement>(600)
  const names = useDatasetNames()
  const { series, count } = passRatePoints(runs, Math.max(2, Math.floor((width - LEFT - RIGHT) / SLOT) + 1), (run: Schemas['EvalRun']) => names.get(run.dataset_id ?? ''))
  const colors = colorsOf(series.map((one) => one.name))
  const x = (at: number) => LEFT + (at / Math.max(1, count - 1)) * (width - LEFT - RIGHT)
  const y = (rate: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - rate)
  const points = series.flatMap((one) => one.points).toSorted((a, b) => a.at - b.at)
  const [first, last] = [points[0], points.at(-1)]
  const isOneDay = first && last && time(first.time, zone, 'date') === time(last.time, zone, 'date')
  return (
    <ChartFrame
      title="Pass rate by run"
      value={last && `latest ${percent(last.rate)}`}
      legend={series.map((one, at) => ({ name: one.name, color: colors[at] ?? 'var(--series-6)' }))}
      table={{ header: ['Run', 'What was judged', 'Passed'], rows: points.map((point) => [`${time(point.time, zone)} (${point.id})`, point.name, percent(point.rate)]) }}
    >
      <div ref={ref} className="relative" style={{ height: HEIGHT }}>
        <svg width={width} height={HEIGHT} className="absolute block" role="group" aria-label="Pass rate by run">
          <Axis ticks={[0, 0.5, 1]} y={y} left={LEFT} width={width - RIGHT + 6} format={(value) => percent(value)} />
          {[first, last].map((point, at) => point && (
            <text key={at} x={at === 0 ? LEFT : width - RIGHT} y={HEIGHT - 4} textAnchor={at === 0 ? 'start' : 'end'} className="fill-muted text-[11px]">
              {time(point.time, zone, 'day')}{isOneDay && ` ${time(point.time, zone, 'minute')}`}
            </text>
          ))}
          {series.map((one, at) => (
            <g key={one.name} stroke={colors[at]} fill={colors[at]}>
              <path d={one.points.map((point, index) => `${index === 0 ? 'M' : 'L'}${x(point.at).toFixed(1)} ${y(point.rate).toFixed(1)}`).join('')} fill="none" strokeWidth={1.5} strokeLinejoin="round" />
              {one.points.map((point) => (
                <Link key={point.id} to="/evals/runs/$runId" params={{ runId: String(point.id) }} aria-label={`${percent(point.rate)} passed, ${point.name}, ${time(point.time, zone)}`}>
                  {/* The target is larger than the dot, for fingers. */}
                  <circle cx={x(point.at)} cy={y(point.rate)} r={12} fill="transparent" stroke="none">
                    <title>{`${percent(point.rate)} passed\n${point.name}\n${time(point.time, zone)}`}</title>
                  </circle>
                  <circle cx={x(point.at)} cy={y(point.rate)} r={3.5} pointerEvents="none" />
                </Link>
              ))}
            </g>
          ))}
        </svg>
      </div>
    </ChartFrame>
  )
}
