import { afterEach, describe, expect, it, vi } from 'vitest'
import { createParser, eventsOf, follow, type LinkState, type ServerEvent, waitAfter } from './sse'

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
  it('finds the same events however the text is cut', () => {
    const text = ': hello\n\nevent: log\nid: 7\ndata: {"a":1}\n\ndata: one\ndata: two\n\n'
    const expected = [
      { event: 'log', data: '{"a":1}', id: '7' },
      { event: 'message', data: 'one\ntwo', id: '7' },
    ]
    for (const ending of ['\n', '\r\n', '\r']) {
      const written = `${text.replaceAll('\n', ending)}:\n`
      for (let size = 1; size <= written.length; size++) {
        const parse = createParser()
        const events: ServerEvent[] = []
        for (let at = 0; at < written.length; at += size) events.push(...parse(written.slice(at, at + size)))
        expect(events, `${JSON.stringify(ending)} in pieces of ${size}`).toEqual(expected)
      }
    }
  })

  it('keeps an unfinished event to itself, and takes only one space off', () => {
    const parse = createParser()
    expect(parse('data:  x\ndata')).toEqual([])
    expect(parse('\n\n')).toEqual([{ event: 'message', data: ' x\n', id: '' }])
  })
})

it('joins characters that were cut in the middle', async () => {
  const bytes = encoder.encode('data: ü\n\n')
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]))
      controller.close()
    },
  })
  const events: ServerEvent[] = []
  for await (const event of eventsOf(new Response(body))) events.push(event)
  expect(events.map((event) => event.data)).toEqual(['ü'])
})

describe('following', () => {
  afterEach(() => {
    vi.unstubAllGlobals()
    vi.useRealTimers()
  })

  async function followed(answers: (() => Response)[]): Promise<{ ids: string[]; states: LinkState[]; asked: (string | null)[] }> {
    vi.useFakeTimers()
    const controller = new AbortController()
    const [ids, asked]: [string[], (string | null)[]] = [[], []]
    const states: LinkState[] = []
    vi.stubGlobal('fetch', (_url: string, init: RequestInit) => {
      asked.push(new Headers(init.headers).get('Last-Event-ID'))
      const answer = answers.shift()
      if (answer) return Promise.resolve(answer())
      controller.abort()
      return Promise.reject(new DOMException('stopped', 'AbortError'))
    })
    const done = follow({
      url: '/stream',
      headers: () => ({ Authorization: 'Bearer t' }),
      lastId: () => ids.at(-1) ?? '',
      signal: controller.signal,
      onEvent: (event) => ids.push(event.id),
      onState: (state) => states.push(state),
    })
    await vi.runAllTimersAsync()
    await done
    return { ids, states, asked }
  }

  it('goes on behind the last event after a break', async () => {
    const { ids, asked } = await followed([
      () => streaming('id: 1\ndata: a\n\n', 'id: 2\ndata: b\n\nid: 3\nda'),
      () => new Response('', { status: 503 }),
      () => streaming('id: 3\ndata: c\n\n'),
    ])
    expect(ids).toEqual(['1', '2', '3'])
    expect(asked).toEqual([null, '2', '2', '3'])
  })

  it('gives up when the server says no', async () => {
    const refusal = JSON.stringify({ code: 'forbidden', message: 'not you' })
    const { states, asked } = await followed([() => new Response(refusal, { status: 403 })])
    expect(asked).toHaveLength(1)
    expect(states.at(-1)).toMatchObject({ kind: 'refused', error: { status: 403, code: 'forbidden' } })
  })

  it('counts failures in a row, and starts anew after a success', async () => {
    const down = (): Response => new Response('', { status: 502 })
    const { states } = await followed([down, down, () => streaming('data: x\n\n'), down])
    const failures = states.flatMap((state) => (state.kind === 'waiting' ? [state.failures] : []))
    expect(failures).toEqual([1, 2, 1, 2])
  })
})

it('waits longer after each failure, and never much longer than half a minute', () => {
  expect([1, 2, 3, 6, 20].map((failures) => waitAfter(failures, 1))).toEqual([1_000, 2_000, 4_000, 30_000, 30_000])
  expect(waitAfter(1, 0)).toBe(500)
})
