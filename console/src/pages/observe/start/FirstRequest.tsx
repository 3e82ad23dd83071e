import { useAction } from '@/lib/useAction'
import { duration } from '@/lib/format'
import { Button, ErrorLine, HttpStatus } from '@/ui'
import type { FirstRequestState } from './useFirstRequest'

export function FirstRequest({ request, onOpen }: { request: FirstRequestState; onOpen(): void }) {
  const { row } = request
  const announcement = row ? `Your first request: ${row.status} in ${duration(row.latency_ms)}` : ''
  return (
    <div className="flex flex-col gap-3">
      <p className="sr-only" role="status">
        {announcement}
      </p>
      {row ? (
        <button type="button" className="card tint flex min-h-11 w-full flex-wrap items-center gap-x-4 gap-y-1 px-3 py-1.5 text-left" onClick={onOpen}>
          <HttpStatus status={row.status} code={row.error_code} />
          <code>
            {row.provider}/{row.model}
          </code>
          <span className="min-w-0 flex-1 truncate text-muted">{row.preview}</span>
          <span className="tabular-nums">{duration(row.latency_ms)}</span>
        </button>
      ) : (
        <Waiting request={request} />
      )}
    </div>
  )
}

function Waiting({ request }: { request: FirstRequestState }) {
  const send = useAction(request.send)
  return (
    <>
      <p className="flex items-center gap-2 text-muted">
        <span className="pulse size-2 rounded-full bg-accent" aria-hidden />
        Waiting…{request.state.kind === 'polling' && ' (polling)'}
      </p>
      {request.isSlow && (
        <div className="rounded-sm border border-line bg-warn-soft px-3 py-2">
          <p className="font-medium">Nothing yet. Most often it is one of these:</p>
          <ul className="mt-1 list-disc pl-5">
            <li>
              The address: it must begin with <code>{location.origin}/sdk</code>, with this port.
            </li>
            <li>
              The path: <code>Authorization: Bearer</code> with a gateway key works under <code>/sdk</code> only.
            </li>
            <li>The key was pasted with quotes, a line break, or only in part.</li>
          </ul>
        </div>
      )}
      <div className="flex flex-wrap items-center gap-3">
        <Button size="sm" needs="member" busy={send.busy} onClick={send.run}>
          Send it from here
        </Button>
        <span className="text-xs text-muted">No terminal at hand? The console can send the same request.</span>
      </div>
      <ErrorLine error={send.error} />
    </>
  )
}
