/**
 * Server-sent events over `fetch`, which unlike EventSource can send the token in a header. `readEvents` reads one
 * response; `followStream` reconnects and resumes after the last event id.
 */
import { ApiError, errorFrom } from '../api/error'

export interface ServerEvent {
  event: string
  data: string
  id: string
}

export type ConnectionState =
  | { kind: 'connecting' }
  | { kind: 'open' }
  /** Disconnected; a retry is scheduled. */
  | { kind: 'waiting'; failures: number; error: ApiError | null }
  /** Rejected with a non-retryable error. */
  | { kind: 'refused'; error: ApiError }

export interface StreamOptions {
  url: string
  headers: () => Record<string, string>
  /** Id to resume after; empty to start with new events. */
  lastId: () => string
  signal: AbortSignal
  onEvent: (event: ServerEvent) => void
  onState: (state: ConnectionState) => void
}

const BASE_DELAY_MS = 1_000
const MAX_DELAY_MS = 30_000

/** Reads the stream and reconnects with backoff until it is aborted or rejected. */
export async function followStream(options: StreamOptions): Promise<void> {
  const { signal, onEvent, onState } = options
  let failures = 0
  while (!signal.aborted) {
    onState({ kind: 'connecting' })
    let error: ApiError | null = null
    try {
      const response = await connect(options)
      failures = 0
      onState({ kind: 'open' })
      for await (const event of readEvents(response)) {
        if (signal.aborted) return
        onEvent(event)
      }
    } catch (failure) {
      error = failure instanceof ApiError ? failure : null
    }
    if (signal.aborted) return
    if (error && !isRetryable(error.status)) {
      onState({ kind: 'refused', error })
      return
    }
    failures += 1
    onState({ kind: 'waiting', failures, error })
    await sleep(error?.retryAfter ? error.retryAfter * 1000 : backoffDelay(failures, Math.random()), signal)
  }
}

/** Yields the events of one response as they arrive. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  const parse = createEventParser()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield* parse(value)
    }
  } finally {
    // Close the connection if the consumer stops early.
    void reader.cancel().catch(() => undefined)
  }
}

/** Incremental SSE parser: takes chunks of any size and returns the completed events. */
export function createEventParser(): (chunk: string) => ServerEvent[] {
  let buffer = ''
  let data: string[] = []
  let event = ''
  let id = ''
  return (chunk) => {
    const events: ServerEvent[] = []
    buffer += chunk
    for (let end = findLineEnd(buffer); end; end = findLineEnd(buffer)) {
      const line = buffer.slice(0, end.at)
      buffer = buffer.slice(end.next)
      if (line === '') {
        if (data.length > 0) events.push({ event: event || 'message', data: data.join('\n'), id })
        data = []
        event = ''
        continue
      }
      const [name, value] = parseField(line)
      if (name === 'data') data.push(value)
      else if (name === 'event') event = value
      else if (name === 'id' && !value.includes('\0')) id = value
    }
    return events
  }
}

/** Exponential backoff from 1 to 30 seconds with 50% jitter, so that clients do not reconnect at once. */
export function backoffDelay(failures: number, random: number): number {
  const delay = Math.min(MAX_DELAY_MS, BASE_DELAY_MS * 2 ** (failures - 1))
  return delay * (0.5 + random / 2)
}

async function connect({ url, headers, lastId, signal }: StreamOptions): Promise<Response> {
  const lastEventId = lastId()
  const resume: Record<string, string> = lastEventId === '' ? {} : { 'Last-Event-ID': lastEventId }
  const response = await fetch(url, {
    headers: { Accept: 'text/event-stream', ...headers(), ...resume },
    cache: 'no-store',
    signal,
  })
  if (!response.ok) throw await errorFrom(response)
  return response
}

function isRetryable(status: number): boolean {
  return status === 0 || status === 408 || status === 429 || status >= 500
}

/** Lines end in CR, LF or CRLF. A trailing CR may be the first half of a CRLF, so it waits for the next chunk. */
function findLineEnd(text: string): { at: number; next: number } | null {
  const at = text.search(/[\r\n]/)
  if (at < 0) return null
  if (text[at] === '\n') return { at, next: at + 1 }
  if (at === text.length - 1) return null
  return { at, next: text[at + 1] === '\n' ? at + 2 : at + 1 }
}

function parseField(line: string): [string, string] {
  const colon = line.indexOf(':')
  if (colon < 0) return [line, '']
  const value = line.slice(colon + 1)
  return [line.slice(0, colon), value.startsWith(' ') ? value.slice(1) : value]
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms)
    function done(): void {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    signal.addEventListener('abort', done)
  })
}
