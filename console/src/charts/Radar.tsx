/** Radar chart of scores between 0 and 1, with a threshold and optional previous scores. */
import { type ReactNode, useId } from 'react'
import { polygonVertex } from './scale'

export interface RadarAxis {
  name: string
  score: number
}

interface Props {
  axes: RadarAxis[]
  threshold?: number
  /** Scores of the previous version. */
  before?: RadarAxis[] | undefined
  label: string
}

const RADIUS = 92
/** Space for the labels outside the polygon. */
const PADDING = { x: 112, y: 24 }
const RINGS = [0.25, 0.5, 0.75, 1]

export function Radar({ axes, threshold, before, label }: Props): ReactNode {
  const id = useId()
  const count = axes.length
  const shape = (score: (index: number) => number): string =>
    axes.map((_, index) => point(polygonVertex(index, count, RADIUS * Math.min(1, Math.max(0, score(index)))))).join(' ')
  const [width, height] = [2 * (RADIUS + PADDING.x), 2 * (RADIUS + PADDING.y)]
  const summary = axes.map((axis) => `${axis.name} ${axis.score.toFixed(2)}`).join(', ')
  return (
    <svg viewBox={`${-width / 2} ${-height / 2} ${width} ${height}`} className="mx-auto block w-full max-w-[408px]" role="img" aria-labelledby={id}>
      <title id={id}>{`${label}: ${summary}`}</title>
      {RINGS.map((ring) => (
        <polygon key={ring} points={shape(() => ring)} fill="none" className="stroke-line" />
      ))}
      {axes.map((axis, index) => {
        const end = polygonVertex(index, count, RADIUS)
        return <line key={axis.name} x2={end.x} y2={end.y} className="stroke-line" />
      })}
      {threshold !== undefined && <polygon points={shape(() => threshold)} fill="none" className="stroke-muted" strokeDasharray="3 3" />}
      {before && <polygon points={shape((index) => before.find((axis) => axis.name === axes[index]?.name)?.score ?? 0)} fill="none" stroke="var(--series-6)" strokeWidth={1.5} opacity={0.7} />}
      <polygon points={shape((index) => axes[index]?.score ?? 0)} fill="var(--series-1)" fillOpacity={0.18} stroke="var(--series-1)" strokeWidth={1.5} strokeLinejoin="round" />
      {axes.map((axis, index) => {
        const position = polygonVertex(index, count, RADIUS + 12)
        const anchor = Math.abs(position.x) < 8 ? 'middle' : position.x > 0 ? 'start' : 'end'
        return (
          <text key={axis.name} x={position.x} y={position.y + 4} textAnchor={anchor} className="fill-fg text-xs">
            {axis.name} <tspan className="fill-muted tabular-nums">{axis.score.toFixed(2)}</tspan>
          </text>
        )
      })}
    </svg>
  )
}

function point({ x, y }: { x: number; y: number }): string {
  return `${x.toFixed(1)},${y.toFixed(1)}`
}
