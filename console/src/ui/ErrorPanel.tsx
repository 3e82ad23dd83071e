import { CircleAlert, Lock, WifiOff } from 'lucide-react'
import { useEffect, useState } from 'react'
import { asApiError, OFFLINE, type ApiError } from '@/api/error'
import { Button } from './Button'
import { CopyButton } from './CopyButton'

interface ErrorPanelProps {
  error: unknown
  onRetry?: () => void
  /** Name of the failed resource: "the logs". */
  what?: string
}

/** Replaces content that failed to load. */
export function ErrorPanel({ error, onRetry, what = 'this' }: ErrorPanelProps) {
  const failure = asApiError(error)
  const Icon = failure.status === OFFLINE ? WifiOff : failure.status === 403 ? Lock : CircleAlert
  return (
    <section role="alert" className="card flex flex-col items-start gap-3 p-4">
      <div className="flex items-start gap-3">
        <Icon size={18} className={failure.status === 403 ? 'mt-0.5 text-muted' : 'mt-0.5 text-err'} aria-hidden />
        <div className="min-w-0">
          <h2 className="text-base">{titleOf(failure, what)}</h2>
          <p className="mt-0.5 break-words text-muted">{failure.message}</p>
          <dl className="mt-2 flex flex-wrap items-center gap-x-4 gap-y-1 text-xs text-muted">
            <div className="flex gap-1">
              <dt>Code</dt>
              <dd className="font-mono text-fg">{failure.code}</dd>
            </div>
            {failure.requestId && (
              <div className="flex items-center gap-1">
                <dt>Request</dt>
                <dd className="flex items-center gap-1 font-mono text-fg">
                  {failure.requestId}
                  <CopyButton value={failure.requestId} label="Copy the request id" size="sm" />
                </dd>
              </div>
            )}
          </dl>
        </div>
      </div>
      {onRetry && <Retry error={failure} onRetry={onRetry} />}
    </section>
  )
}

function titleOf(error: ApiError, what: string): string {
  if (error.status === OFFLINE) return 'The gateway cannot be reached'
  if (error.status === 403) return `You may not see ${what}`
  if (error.status === 404) return 'Not found'
  if (error.status === 429) return 'Too many requests'
  return `Could not load ${what}`
}

/** Retry button; retries automatically after `Retry-After`. */
function Retry({ error, onRetry }: { error: ApiError; onRetry: () => void }) {
  const [left, setLeft] = useState(error.status === 429 ? (error.retryAfter ?? 5) : 0)
  useEffect(() => {
    if (left <= 0) return
    const timer = setTimeout(() => {
      setLeft(left - 1)
      if (left === 1) onRetry()
    }, 1000)
    return () => clearTimeout(timer)
  }, [left, onRetry])
  return left > 0 ? <p className="text-muted">Trying again in {left} s</p> : <Button onClick={onRetry}>Retry</Button>
}

/** Form-level error message. */
export function ErrorLine({ error }: { error: unknown }) {
  if (!error) return null
  const failure = asApiError(error)
  return (
    <p role="alert" className="rounded-sm border border-line bg-err-soft px-3 py-2 text-err">
      {failure.message}
      {failure.status === 429 && failure.retryAfter !== null && <> Try again in {failure.retryAfter} s.</>}
      {failure.status >= 500 && failure.requestId && <span className="block font-mono text-xs">{failure.requestId}</span>}
    </p>
  )
}
