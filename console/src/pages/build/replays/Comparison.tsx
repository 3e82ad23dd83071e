import type { ReactNode } from 'react'
import type { Schemas } from '@/api/client'
import { duration, integer, moneyColumn, percent } from '@/lib/format'
import { countChange, pointsChange, relativeChange, type Change } from '@/lib/replays'
import { Badge, Section } from '@/ui'
import { ChangeText } from '../shared/ChangeText'

interface Line {
  name: ReactNode
  before: ReactNode
  after: ReactNode
  change: Change
}

/** Every measure before and after, over the same requests. */
export function Comparison({ replay }: { replay: Schemas['ReplayDetail'] }) {
  const { before, after, scores } = replay
  if (after.calls === 0) return null
  const amount = moneyColumn([before.cost_usd, after.cost_usd])
  const cost = (side: Schemas['ReplaySide']) => (
    <>
      {side.cost_usd === null ? 'no price' : amount(side.cost_usd)}
      {side.unpriced > 0 && side.cost_usd !== null && <span className="block text-xs text-muted">{integer(side.unpriced)} without a price</span>}
    </>
  )
  // Sums over different requests are not comparable.
  const priced = before.unpriced === 0 && after.unpriced === 0
  const lines: Line[] = [
    { name: 'Cost', before: cost(before), after: cost(after), change: relativeChange(priced ? before.cost_usd : null, priced ? after.cost_usd : null, 'less') },
    { name: 'Latency, median', before: duration(before.p50_ms), after: duration(after.p50_ms), change: relativeChange(before.p50_ms, after.p50_ms, 'less') },
    { name: 'Latency, p95', before: duration(before.p95_ms), after: duration(after.p95_ms), change: relativeChange(before.p95_ms, after.p95_ms, 'less') },
    { name: 'Errors', before: integer(before.errors), after: integer(after.errors), change: countChange(before.errors, after.errors, 'less') },
    { name: 'Input tokens', before: integer(before.input_tokens), after: integer(after.input_tokens), change: relativeChange(before.input_tokens, after.input_tokens, 'neither') },
    { name: 'Output tokens', before: integer(before.output_tokens), after: integer(after.output_tokens), change: relativeChange(before.output_tokens, after.output_tokens, 'neither') },
    ...scores.map((score) => ({
      name: (
        <>
          {score.eval_name}
          <span className="block text-xs font-normal text-muted">passed, of {integer(score.judged)} judged</span>
        </>
      ),
      before: <Passed side={score.before} />,
      after: (
        <>
          <Passed side={score.after} />
          {(score.gained > 0 || score.lost > 0) && (
            <span className="mt-0.5 flex flex-wrap justify-end gap-1">
              {score.gained > 0 && <Badge tone="ok">{integer(score.gained)} improved</Badge>}
              {score.lost > 0 && <Badge tone="err">{integer(score.lost)} regressed</Badge>}
            </span>
          )}
        </>
      ),
      change: pointsChange(score.before.pass_rate, score.after.pass_rate),
    })),
  ]
  return (
    <Section flush title="Before and after" aside={<span className="text-xs text-muted">{integer(after.calls)} requests on both sides</span>}>
      <div className="overflow-x-auto" role="region" tabIndex={0} aria-label="Before and after">
        <table className="table">
          <thead>
            <tr>
              <th scope="col" className="max-sm:px-2">Measure</th>
              <th scope="col" className="num max-sm:px-2">
                Original
              </th>
              <th scope="col" className="num max-sm:px-2">
                Replay
              </th>
              <th scope="col" className="num max-sm:px-2">
                Change
              </th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line, at) => (
              <tr key={at}>
                <td className="py-1.5 font-medium max-sm:px-2">{line.name}</td>
                <td className="num py-1.5 max-sm:px-2">{line.before}</td>
                <td className="num py-1.5 max-sm:px-2">{line.after}</td>
                <td className="num max-sm:px-2">
                  <ChangeText change={line.change} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  )
}

function Passed({ side }: { side: Schemas['ReplayEvalSide'] }) {
  return (
    <>
      {percent(side.pass_rate)}
      <span className="block text-xs text-muted">score {side.average_score === null ? '–' : side.average_score.toFixed(2)}</span>
    </>
  )
}
