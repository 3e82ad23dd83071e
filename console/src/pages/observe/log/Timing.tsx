import { useMemo } from 'react'
import { Waterfall, type Span } from '@/charts/Waterfall'
import { duration } from '@/lib/format'
import { HttpStatus, Table, type Column } from '@/ui'
import type { LogDetail } from './copyAs'

type Attempt = LogDetail['attempts'][number]

const COLUMNS: readonly Column<Attempt & { number: number }>[] = [
  { key: 'target', header: 'Target', cell: (attempt) => <code className="whitespace-nowrap">{targetOf(attempt)}</code> },
  { key: 'status', header: 'Status', cell: (attempt) => (attempt.status === null ? <span className="whitespace-nowrap text-err">no answer</span> : <HttpStatus status={attempt.status} code={attempt.error !== null && attempt.status < 400 ? 'failed' : null} />) },
  { key: 'start', header: 'Began', number: true, cell: (attempt) => duration(attempt.start_ms) },
  { key: 'ttft', header: 'First token', number: true, cell: (attempt) => duration(attempt.ttft_ms) },
  { key: 'latency', header: 'Took', number: true, cell: (attempt) => duration(attempt.latency_ms) },
]

/** Timing breakdown: gateway overhead, attempts and retry delays. */
export function Timing({ log }: { log: LogDetail }) {
  const spans = useMemo(() => buildSpans(log), [log])
  const failures = log.attempts.filter((attempt) => attempt.error !== null)
  return (
    <>
      <Waterfall spans={spans} totalMs={log.latency_ms} label="Attempts over time" />
      {log.attempts.length > 0 ? (
        <div className="card">
          <Table label="Attempts" columns={COLUMNS} rows={log.attempts.map((attempt, at) => ({ ...attempt, number: at + 1 }))} rowKey={(attempt) => attempt.number} />
        </div>
      ) : (
        <p className="text-muted">{log.cache === 'hit' ? 'Answered from the cache: no provider was called.' : 'No provider was called.'}</p>
      )}
      {failures.length > 0 && (
        <section>
          <h3 className="mb-1 text-xs text-muted">What went wrong</h3>
          <ul className="flex flex-col gap-1">
            {failures.map((attempt) => (
              <li key={attempt.start_ms} className="rounded-sm bg-err-soft px-3 py-1.5">
                <code>{targetOf(attempt)}</code> <span className="break-words text-err">{attempt.error}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  )
}

function buildSpans(log: LogDetail): Span[] {
  const whole: Span = { label: 'gateway', colorName: null, startMs: 0, lengthMs: log.latency_ms, failed: false }
  return [
    whole,
    ...log.attempts.map((attempt) => {
      const failed = attempt.status === null || attempt.status >= 400 || attempt.error !== null
      return {
        label: targetOf(attempt),
        colorName: attempt.provider,
        startMs: attempt.start_ms,
        lengthMs: attempt.latency_ms,
        firstTokenMs: attempt.ttft_ms === null || failed ? null : attempt.start_ms + attempt.ttft_ms,
        failed,
        ...(attempt.error && { note: attempt.error }),
      }
    }),
  ]
}

function targetOf(attempt: Attempt): string {
  return attempt.model ? `${attempt.provider}/${attempt.model}` : attempt.provider
}
