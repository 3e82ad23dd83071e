import { afterEach, describe, expect, it, vi } from 'vitest'
import { createEventParser, readEvents, followStream, type ConnectionState, type ServerEvent, backoffDelay } from './sse'

const encoder = new TextEncoder()

function streaming(...pieces: string[]): Response {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(encoder.encode(piece))
      controller.close()
    },
  })
  return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } })
}

describe('the parser', () => {
  it('returns the same events for any chunking', () => {
    const text = ': hello\n\nevent: log\nid: 7\ndata: {"a":1}\n\ndata: one\ndata: two\n\n'
    const expected = [
      { event: 'log', data: '{"a":1}', id: '7' },
      { event: 'message', data: 'one\ntwo', id: '7' },
    ]
    for (const ending of ['\n', '\r\n', '\r']) {
      const written = `${text.replaceAll('\n', ending)}:\n`
      for (let size = 1; size <= written.length; size++) {
        const parse = createEventParser()
        const events: ServerEvent[] = []
        for (let at = 0; at < written.length; at += size) events.push(...parse(written.slice(at, at + size)))
        expect(events, `${JSON.stringify(ending)} in pieces of ${size}`).toEqual(expected)
      }
    }
  })

  it('buffers an incomplete event and strips only one leading space', () => {
    const parse = createEventParser()
    expect(parse('data:  x\ndata')).toEqual([])
    expect(parse('\n\n')).toEqual([{ event: 'message', data: ' x\n', id: '' }])
  })
})

it('decodes characters split across chunks', async () => {
  const bytes = encoder.encode('data: ü\n\n')
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]))
      controller.close()
    },
  })
  const events: ServerEvent[] = []
  for await (const event of readEvents(new Response(body))) events.push(event)
  expect(events.map((event) => event.data)).toEqual(['ü'])
})

describe('following', () => {
  afterEach(() => {
    vi.unstubAllGlobals()
    vi.useRealTimers()
  })

  async function follow(responses: (() => Response)[]): Promise<{ ids: string[]; states: ConnectionState[]; lastEventIds: (string | null)[] }> {
    vi.useFakeTimers()
    const controller = new AbortController()
    const [ids, lastEventIds]: [string[], (string | null)[]] = [[], []]
    const states: ConnectionState[] = []
    vi.stubGlobal('fetch', (_url: string, init: RequestInit) => {
      lastEventIds.push(new Headers(init.headers).get('Last-Event-ID'))
      const respond = responses.shift()
      if (respond) return Promise.resolve(respond())
      controller.abort()
      return Promise.reject(new DOMException('stopped', 'AbortError'))
    })
    const done = followStream({
      url: '/stream',
      headers: () => ({ Authorization: 'Bearer t' }),
      lastId: () => ids.at(-1) ?? '',
      signal: controller.signal,
      onEvent: (event) => ids.push(event.id),
      onState: (state) => states.push(state),
    })
    await vi.runAllTimersAsync()
    await done
    return { ids, states, lastEventIds }
  }

  it('resumes after the last event when the connection breaks', async () => {
    const { ids, lastEventIds } = await follow([
      () => streaming('id: 1\ndata: a\n\n', 'id: 2\ndata: b\n\nid: 3\nda'),
      () => new Response('', { status: 503 }),
      () => streaming('id: 3\ndata: c\n\n'),
    ])
    expect(ids).toEqual(['1', '2', '3'])
    expect(lastEventIds).toEqual([null, '2', '2', '3'])
  })

  it('stops on a non-retryable status', async () => {
    const errorBody = JSON.stringify({ code: 'forbidden', message: 'not you' })
    const { states, lastEventIds } = await follow([() => new Response(errorBody, { status: 403 })])
    expect(lastEventIds).toHaveLength(1)
    expect(states.at(-1)).toMatchObject({ kind: 'refused', error: { status: 403, code: 'forbidden' } })
  })

  it('counts consecutive failures and resets after a success', async () => {
    const down = (): Response => new Response('', { status: 502 })
    const { states } = await follow([down, down, () => streaming('data: x\n\n'), down])
    const failures = states.flatMap((state) => (state.kind === 'waiting' ? [state.failures] : []))
    expect(failures).toEqual([1, 2, 1, 2])
  })
})

it('backs off exponentially up to 30 seconds', () => {
  expect([1, 2, 3, 6, 20].map((failures) => backoffDelay(failures, 1))).toEqual([1_000, 2_000, 4_000, 30_000, 30_000])
  expect(backoffDelay(1, 0)).toBe(500)
})
