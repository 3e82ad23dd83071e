/**
 * Server-sent events over `fetch`, which unlike EventSource can send the token in a header. `eventsOf` reads one stream;
 * `follow` keeps one open for as long as it is wanted and goes on behind the last id after a break.
 */
import { ApiError, errorFrom } from '../api/error'

export interface ServerEvent {
  event: string
  data: string
  id: string
}

export type LinkState =
  | { kind: 'connecting' }
  | { kind: 'open' }
  /** Broken; tried again by itself. */
  | { kind: 'waiting'; failures: number; error: ApiError | null }
  /** The server said no, and would say it again. */
  | { kind: 'refused'; error: ApiError }

export interface Following {
  url: string
  headers: () => Record<string, string>
  /** Behind which event to go on; empty for the present. */
  lastId: () => string
  signal: AbortSignal
  onEvent: (event: ServerEvent) => void
  onState: (state: LinkState) => void
}

const FIRST_WAIT_MS = 1_000
const LONGEST_WAIT_MS = 30_000

/** Follows a stream until it is aborted or refused. */
export async function follow(following: Following): Promise<void> {
  const { signal, onEvent, onState } = following
  let failures = 0
  while (!signal.aborted) {
    onState({ kind: 'connecting' })
    let error: ApiError | null = null
    try {
      const response = await open(following)
      failures = 0
      onState({ kind: 'open' })
      for await (const event of eventsOf(response)) {
        if (signal.aborted) return
        onEvent(event)
      }
    } catch (thrown) {
      error = thrown instanceof ApiError ? thrown : null
    }
    if (signal.aborted) return
    if (error && !isWorthAnotherTry(error.status)) {
      onState({ kind: 'refused', error })
      return
    }
    failures += 1
    onState({ kind: 'waiting', failures, error })
    await pause(error?.retryAfter ? error.retryAfter * 1000 : waitAfter(failures, Math.random()), signal)
  }
}

/** The events of one answer, as they arrive. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  const parse = createParser()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield* parse(value)
    }
  } finally {
    // Whoever stops listening early must not leave the connection open.
    void reader.cancel().catch(() => undefined)
  }
}

/** Takes text in pieces of any size and gives back the events that are complete. */
export function createParser(): (piece: string) => ServerEvent[] {
  let rest = ''
  let data: string[] = []
  let event = ''
  let id = ''
  return (piece) => {
    const events: ServerEvent[] = []
    rest += piece
    for (let end = lineEnd(rest); end; end = lineEnd(rest)) {
      const line = rest.slice(0, end.at)
      rest = rest.slice(end.next)
      if (line === '') {
        if (data.length > 0) events.push({ event: event || 'message', data: data.join('\n'), id })
        data = []
        event = ''
        continue
      }
      const [name, value] = fieldOf(line)
      if (name === 'data') data.push(value)
      else if (name === 'event') event = value
      else if (name === 'id' && !value.includes('\0')) id = value
    }
    return events
  }
}

/** Doubles from one second to thirty, with up to half of it left to chance, so that many clients do not come at once. */
export function waitAfter(failures: number, chance: number): number {
  const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (failures - 1))
  return longest * (0.5 + chance / 2)
}

async function open({ url, headers, lastId, signal }: Following): Promise<Response> {
  const behind = lastId()
  const resume: Record<string, string> = behind === '' ? {} : { 'Last-Event-ID': behind }
  const response = await fetch(url, {
    headers: { Accept: 'text/event-stream', ...headers(), ...resume },
    cache: 'no-store',
    signal,
  })
  if (!response.ok) throw await errorFrom(response)
  return response
}

function isWorthAnotherTry(status: number): boolean {
  return status === 0 || status === 408 || status === 429 || status >= 500
}

/** Lines end in CR, LF or both; a CR at the very end may be half of such a pair. */
function lineEnd(text: string): { at: number; next: number } | null {
  const at = text.search(/[\r\n]/)
  if (at < 0) return null
  if (text[at] === '\n') return { at, next: at + 1 }
  if (at === text.length - 1) return null
  return { at, next: text[at + 1] === '\n' ? at + 2 : at + 1 }
}

function fieldOf(line: string): [string, string] {
  const colon = line.indexOf(':')
  if (colon < 0) return [line, '']
  const value = line.slice(colon + 1)
  return [line.slice(0, colon), value.startsWith(' ') ? value.slice(1) : value]
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
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
