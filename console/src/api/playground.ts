/** Models asked from the playground: one stream of events for all of them, told apart by their index. */
import { eventsOf } from '@/lib/sse'
import { authHeaders, type Schemas } from './client'
import { ApiError, errorFrom, isRecord, OFFLINE } from './error'
import { sessionRefused } from './session'

export type PlayEvent =
  | { kind: 'start'; index: number }
  | { kind: 'delta'; index: number; content: string }
  | { kind: 'done'; index: number; run: Schemas['PlaygroundRun'] }
  | { kind: 'error'; index: number; failure: Failure }

export interface Failure {
  code: string
  message: string
  logId: number | null
}

type Ask = { path: 'run'; body: Schemas['PlaygroundRunRequest'] } | { path: 'compare'; body: Schemas['CompareRequest'] }

/** Asks and tells what comes until the last answer is complete, or until it is aborted. */
export async function* play({ path, body }: Ask, signal: AbortSignal): AsyncGenerator<PlayEvent> {
  const response = await fetch(`/api/v1/playground/${path}`, {
    method: 'POST',
    headers: { ...authHeaders(), 'Content-Type': 'application/json', Accept: 'text/event-stream' },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  }).catch((failure: unknown) => {
    if (signal.aborted) throw failure
    throw new ApiError(OFFLINE, { code: 'offline', message: 'The gateway cannot be reached' })
  })
  if (response.status === 401) sessionRefused()
  if (!response.ok) throw await errorFrom(response)
  for await (const { event, data } of eventsOf(response)) {
    const read = eventOf(event, JSON.parse(data) as unknown)
    if (read) yield read
  }
}

function eventOf(name: string, data: unknown): PlayEvent | null {
  if (!isRecord(data) || typeof data['index'] !== 'number') return null
  const index = data['index']
  switch (name) {
    case 'start':
      return { kind: 'start', index }
    case 'delta':
      return { kind: 'delta', index, content: typeof data['content'] === 'string' ? data['content'] : '' }
    case 'done':
      return { kind: 'done', index, run: data as Schemas['PlaygroundRun'] & Record<string, unknown> }
    case 'error':
      return { kind: 'error', index, failure: failureOf(data['error'], data['log_id']) }
    default:
      return null
  }
}

/** What is known of a model that gave no answer. */
export function failureOf(error: unknown, logId: unknown): Failure {
  const told = isRecord(error) ? error : {}
  return {
    code: typeof told['code'] === 'string' ? told['code'] : 'unknown',
    message: typeof told['message'] === 'string' ? told['message'] : 'The model gave no answer',
    logId: typeof logId === 'number' ? logId : null,
  }
}
