import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { ApiError } from '@/api/error'
import { percent, plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Badge, Button, ErrorLine } from '@/ui'
import { isRunning, passRate } from './RunList'

const TRIAL_SIZE = 20
const TRIAL_TIMEOUT_MS = 60_000

interface Outcome {
  run: Schemas['EvalRun']
  results: Schemas['EvalResult'][]
}

/**
 * Trial run of an unsaved definition on recent requests. The API runs stored definitions only, so a disabled definition
 * is stored for the trial and deleted with its run afterwards.
 */
export function TryIt({ definition, blocked }: { definition: Schemas['NewEval']; blocked: string | false }) {
  const [outcome, setOutcome] = useState<Outcome | null>(null)
  const attempt = useAction(async () => {
    setOutcome(null)
    const created = await unwrap(client.POST('/api/v1/evals', { body: { ...definition, name: `Trial of ${definition.name || definition.evaluator}`, enabled: false, sample_rate: 0 } }))
    const path = { evalId: created.id }
    try {
      const run = await unwrap(client.POST('/api/v1/evals/{evalId}/run', { params: { path }, body: { limit: TRIAL_SIZE } }))
      const ended = await waitForRun(run)
      const { results } = await unwrap(client.GET('/api/v1/evals/runs/{runId}/results', { params: { path: { runId: run.id }, query: { limit: TRIAL_SIZE } } }))
      setOutcome({ run: ended, results })
    } finally {
      await client.DELETE('/api/v1/evals/{evalId}', { params: { path } })
    }
  })
  return (
    <div className="card flex flex-col gap-2 bg-sunken p-3">
      <div className="flex flex-wrap items-center gap-2">
        <Button size="sm" needs="member" busy={attempt.busy} blocked={blocked} onClick={attempt.run}>
          Try on the last {TRIAL_SIZE} requests
        </Button>
        {outcome && (
          <span role="status">
            {outcome.run.total === 0 ? 'There are no requests to try it on.' : `${percent(passRate(outcome.run))} of ${plural(outcome.run.passed + outcome.run.failed, 'request')} passed${outcome.run.errors > 0 ? `, ${outcome.run.errors} could not be judged` : ''}`}
          </span>
        )}
      </div>
      {outcome && outcome.results.length > 0 && (
        <ul className="max-h-40 overflow-y-auto text-xs" aria-label="Verdicts" tabIndex={0}>
          {outcome.results
            .toSorted((a, b) => Number(a.passed) - Number(b.passed))
            .map((result) => (
              <li key={result.id} className="flex items-center gap-2 py-0.5">
                <Badge tone={result.passed ? 'ok' : 'err'}>{result.passed ? 'passed' : 'failed'}</Badge>
                <span className="name min-w-0 flex-1 truncate">{result.details}</span>
              </li>
            ))}
        </ul>
      )}
      <ErrorLine error={attempt.error} />
    </div>
  )
}

async function waitForRun(started: Schemas['EvalRun']): Promise<Schemas['EvalRun']> {
  const end = Date.now() + TRIAL_TIMEOUT_MS
  for (let run = started; ; ) {
    if (!isRunning(run)) return run
    if (Date.now() > end) throw new ApiError(0, { code: 'timeout', message: 'This is taking too long. Save the eval and start a run instead.' })
    await new Promise((done) => setTimeout(done, 500))
    run = await unwrap(client.GET('/api/v1/evals/runs/{runId}', { params: { path: { runId: run.id } } }))
  }
}
