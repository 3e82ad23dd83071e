import { Link } from '@tanstack/react-router'
import type { Schemas } from '@/api/client'
import { duration, integer, money } from '@/lib/format'
import { Badge, HttpStatus } from '@/ui'
import { AnswerPair } from '../shared/AnswerPair'
import { StepHead } from '../shared/StepHead'

interface RowHeadProps {
  position: { at: number; of: number } | null
  onStep(by: number): void
}

export function RowHead(props: RowHeadProps) {
  return <StepHead title="Original and replay" {...props} />
}

/** Both calls of one row: input, verdicts, answers. */
export function RowContent({ row, evals }: { row: Schemas['ReplayRow']; evals: readonly Schemas['ReplayEvalName'][] }) {
  return (
    <div className="flex flex-col gap-4 p-4">
      {row.error && (
        <p role="alert" className="card bg-err-soft px-3 py-2 break-words text-err">
          {row.error}
        </p>
      )}
      <section>
        <h3 className="mb-1 text-xs text-muted">Input (last user message)</h3>
        <p className="card max-h-48 overflow-y-auto bg-sunken p-3 break-words whitespace-pre-wrap" tabIndex={0} role="region" aria-label="Input">
          {row.input ?? 'The log row is gone, or has no text.'}
        </p>
      </section>
      {row.scores.length > 0 && <Scores row={row} evals={evals} />}
      <AnswerPair
        a={{ title: 'Original', text: row.before.answer, empty: emptyText(row.before), figures: <Figures call={row.before} logId={row.log_id} /> }}
        b={{ title: 'Replay', text: row.after?.answer ?? null, empty: row.after ? emptyText(row.after) : row.state === 'error' ? 'Could not be sent.' : 'Not sent yet.', figures: row.after && <Figures call={row.after} logId={row.replay_log_id} /> }}
      />
    </div>
  )
}

function emptyText(call: Schemas['ReplayCall']): string {
  return call.status >= 400 ? `The provider responded with ${call.status}.` : 'No text: a tool call, or the log row is gone.'
}

function Figures({ call, logId }: { call: Schemas['ReplayCall']; logId: number | null }) {
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-0.5">
      <code className="break-all">{[call.provider, call.model].filter(Boolean).join('/')}</code>
      <HttpStatus status={call.status} short />
      <span>{call.cost_usd === null ? 'no price' : money(call.cost_usd)}</span>
      <span>{duration(call.latency_ms)}</span>
      <span>
        {integer(call.input_tokens)} in, {integer(call.output_tokens)} out
      </span>
      {logId !== null && (
        <Link to="/logs" search={{ log: logId }} className="text-accent underline">
          Open log
        </Link>
      )}
    </div>
  )
}

function Scores({ row, evals }: { row: Schemas['ReplayRow']; evals: readonly Schemas['ReplayEvalName'][] }) {
  return (
    <table className="table">
      <thead>
        <tr>
          <th scope="col">Eval</th>
          <th scope="col">Original</th>
          <th scope="col">Replay</th>
        </tr>
      </thead>
      <tbody>
        {row.scores.map((score) => (
          <tr key={score.eval_id}>
            <td className="break-words">
              {evals.find((one) => one.id === score.eval_id)?.name ?? score.eval_id}
              {score.error && <span className="block text-xs text-err">{score.error}</span>}
            </td>
            <td>
              <Verdict verdict={score.before} />
            </td>
            <td>
              <Verdict verdict={score.after} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

function Verdict({ verdict }: { verdict: Schemas['ReplayVerdict'] | null }) {
  if (!verdict) return <span className="text-muted">–</span>
  return (
    <span className="inline-flex items-center gap-2 whitespace-nowrap">
      <Badge tone={verdict.passed ? 'ok' : 'err'}>{verdict.passed ? 'passed' : 'failed'}</Badge>
      <span className="tabular-nums">{verdict.score.toFixed(2)}</span>
    </span>
  )
}
