/** Playground runs as server-sent events. One stream carries all models; events are distinguished by index. */
import { readEvents } from '@/lib/sse'
import { authHeaders, type Schemas } from './client'
import { ApiError, errorFrom, isRecord, OFFLINE } from './error'
import { notifySessionExpired } from './session'

export type PlaygroundEvent =
  | { kind: 'start'; index: number }
  /** `toolCalls` are pieces of calls, as in the chunks of chat completions. */
  | { kind: 'delta'; index: number; content: string; toolCalls: readonly unknown[] }
  | { kind: 'done'; index: number; run: Schemas['PlaygroundRun'] }
  | { kind: 'error'; index: number; failure: RunFailure }

export interface RunFailure {
  code: string
  message: string
  logId: number | null
}

type PlaygroundRequest = { path: 'run'; body: Schemas['PlaygroundRunRequest'] } | { path: 'compare'; body: Schemas['CompareRequest'] }

/** Starts the runs and yields their events until all are complete or the signal aborts. */
export async function* streamRuns({ path, body }: PlaygroundRequest, signal: AbortSignal): AsyncGenerator<PlaygroundEvent> {
  const response = await fetch(`/api/v1/playground/${path}`, {
    method: 'POST',
    headers: { ...authHeaders(), 'Content-Type': 'application/json', Accept: 'text/event-stream' },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  }).catch((failure: unknown) => {
    if (signal.aborted) throw failure
    throw new ApiError(OFFLINE, { code: 'offline', message: 'The gateway cannot be reached' })
  })
  if (response.status === 401) notifySessionExpired()
  if (!response.ok) throw await errorFrom(response)
  for await (const { event, data } of readEvents(response)) {
    const parsed = parseEvent(event, JSON.parse(data) as unknown)
    if (parsed) yield parsed
  }
}

function parseEvent(name: string, data: unknown): PlaygroundEvent | null {
  if (!isRecord(data) || typeof data['index'] !== 'number') return null
  const index = data['index']
  switch (name) {
    case 'start':
      return { kind: 'start', index }
    case 'delta':
      return {
        kind: 'delta',
        index,
        content: typeof data['content'] === 'string' ? data['content'] : '',
        // A gateway that leaves them out has the calls in `done` only.
        toolCalls: Array.isArray(data['tool_calls']) ? data['tool_calls'] : [],
      }
    case 'done':
      return { kind: 'done', index, run: data as Schemas['PlaygroundRun'] & Record<string, unknown> }
    case 'error':
      return { kind: 'error', index, failure: parseFailure(data['error'], data['log_id']) }
    default:
      return null
  }
}

/** Parses the error of a failed run. */
export function parseFailure(error: unknown, logId: unknown): RunFailure {
  const fields = isRecord(error) ? error : {}
  return {
    code: typeof fields['code'] === 'string' ? fields['code'] : 'unknown',
    message: typeof fields['message'] === 'string' ? fields['message'] : 'The model gave no answer',
    logId: typeof logId === 'number' ? logId : null,
  }
}
