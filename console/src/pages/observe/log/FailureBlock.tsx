import { CircleAlert } from 'lucide-react'
import { detailedFailure } from '@/lib/failure'
import { plural } from '@/lib/format'
import { CopyButton } from '@/ui'
import type { LogDetail } from './copyAs'

/** Why the request failed, above everything else: status, message, code, and what was tried. */
export function FailureBlock({ log }: { log: LogDetail }) {
  const failure = detailedFailure(log)
  if (!failure) return null
  const tried = log.attempts.length
  const facts = [
    failure.code !== null && failure.code !== log.error_code && failure.code,
    log.error_code,
    tried > 0 ? plural(tried, 'attempt') : !['otel', 'mcp'].includes(log.source) && 'refused by the gateway, no provider was called',
    retryAfter(failure.message),
  ].filter((fact): fact is string => typeof fact === 'string' && fact !== '')
  return (
    <section aria-label="Error" className="flex items-start gap-2 border-b border-line bg-err-soft px-4 py-2">
      <CircleAlert size={16} className="mt-0.5 shrink-0 text-err" aria-hidden />
      <div className="min-w-0 flex-1">
        <p className="font-medium break-words whitespace-pre-wrap text-err">{failure.message}</p>
        <p className="text-xs text-muted">
          <span className="tabular-nums">{log.status}</span> · {facts.join(' · ')}
        </p>
      </div>
      <CopyButton value={failure.message} label="Copy error" />
    </section>
  )
}

/** Providers say in the message when to try again. */
function retryAfter(message: string): string | null {
  const found = /(?:try again|retry)[^.]*? in (\d[\w.]*(?: (?:seconds?|minutes?|hours?))?)/i.exec(message)?.[1]
  return found ? `retry after ${found}` : null
}
