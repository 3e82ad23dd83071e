import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { createLive, type Live, type LiveState, type Surroundings } from './live'
import type { ServerEvent } from './sse'

/** A lock and channels as browsers have them, shared by the tabs of one test. */
function browser(): { tab: (url?: string) => { live: Live; hide: (hidden: boolean) => void } } {
  let holder: Promise<unknown> = Promise.resolve()
  const channels = new Set<{ onmessage: ((message: { data: unknown }) => void) | null }>()
  return {
    tab() {
      let hidden = false
      const listeners = new Set<() => void>()
      const around: Surroundings = {
        locks: {
          request: ((_name: string, options: { signal: AbortSignal }, work: () => Promise<unknown>) => {
            const turn = holder.then(() => (options.signal.aborted ? undefined : work()))
            holder = turn
            return turn
          }) as LockManager['request'],
        },
        openChannel: () => {
          const channel = { onmessage: null as ((message: { data: unknown }) => void) | null } as unknown as BroadcastChannel
          channels.add(channel as never)
          channel.postMessage = (data: unknown) => {
            for (const other of channels) if (other !== (channel as never)) other.onmessage?.({ data })
          }
          channel.close = () => channels.delete(channel as never)
          return channel
        },
        isHidden: () => hidden,
        onVisibility: (listener) => {
          listeners.add(listener)
          return () => listeners.delete(listener)
        },
      }
      const live = createLive({ name: 'logs', url: '/stream', headers: () => ({}), poll: polled }, around)
      return {
        live,
        hide: (now) => {
          hidden = now
          for (const listener of listeners) listener()
        },
      }
    },
  }
}

const polled = vi.fn((_after: string): Promise<ServerEvent[]> => Promise.resolve([]))
let streams: { lastId: string | null; send: (text: string) => void; open: boolean }[] = []
let isDown = false

beforeEach(() => {
  vi.useFakeTimers()
  streams = []
  isDown = false
  polled.mockClear()
  vi.stubGlobal('fetch', (_url: string, init: RequestInit) => {
    if (isDown) return Promise.resolve(new Response('', { status: 503 }))
    const stream = { lastId: new Headers(init.headers).get('Last-Event-ID'), send: (_: string) => {}, open: true }
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        stream.send = (text) => controller.enqueue(new TextEncoder().encode(text))
        init.signal?.addEventListener('abort', () => {
          stream.open = false
          controller.error(new DOMException('stopped', 'AbortError'))
        })
      },
    })
    streams.push(stream)
    return Promise.resolve(new Response(body))
  })
})

afterEach(() => {
  vi.unstubAllGlobals()
  vi.useRealTimers()
})

function listen(live: Live): { ids: string[]; states: LiveState[]; stop: () => void } {
  const heard = { ids: [] as string[], states: [] as LiveState[] }
  return { ...heard, stop: live.subscribe((event) => heard.ids.push(event.id), (state) => heard.states.push(state)) }
}

const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(10)

it('opens one stream for all tabs, and all of them hear everything', async () => {
  const { tab } = browser()
  const [first, second] = [listen(tab().live), listen(tab().live)]
  await settle()
  expect(streams).toHaveLength(1)
  streams[0]?.send('id: 5\ndata: x\n\n')
  await settle()
  expect(first.ids).toEqual(['5'])
  expect(second.ids).toEqual(['5'])
  expect(second.states.at(-1)).toEqual({ kind: 'open' })
})

it('is taken over behind the last event when the tab that had it closes', async () => {
  const { tab } = browser()
  const [first, second] = [listen(tab().live), listen(tab().live)]
  await settle()
  streams[0]?.send('id: 5\ndata: x\n\n')
  await settle()
  first.stop()
  await settle()
  expect(streams.map((stream) => stream.open)).toEqual([false, true])
  expect(streams[1]?.lastId).toBe('5')
  streams[1]?.send('id: 6\ndata: y\n\n')
  await settle()
  expect(second.ids).toEqual(['5', '6'])
  expect(first.ids).toEqual(['5'])
})

it('is given up by a tab that nobody has looked at for a minute, and resumed when somebody does', async () => {
  const { tab } = browser()
  const only = tab()
  const { ids } = listen(only.live)
  await settle()
  streams[0]?.send('id: 5\ndata: x\n\n')
  await settle()
  only.hide(true)
  await vi.advanceTimersByTimeAsync(59_000)
  expect(streams[0]?.open).toBe(true)
  await vi.advanceTimersByTimeAsync(2_000)
  expect(streams[0]?.open).toBe(false)
  only.hide(false)
  await settle()
  expect(streams[1]?.lastId).toBe('5')
  streams[1]?.send('id: 6\ndata: y\n\n')
  await settle()
  expect(ids).toEqual(['5', '6'])
})

it('asks the store while the stream keeps failing, and stops when it is back', async () => {
  const { tab } = browser()
  isDown = true
  polled.mockResolvedValueOnce([{ event: 'log', id: '9', data: 'x' }])
  const { ids, states } = listen(tab().live)
  await vi.advanceTimersByTimeAsync(15_000)
  expect(states.at(-1)).toEqual({ kind: 'polling' })
  expect(ids).toEqual(['9'])
  isDown = false
  await vi.advanceTimersByTimeAsync(31_000)
  expect(states.at(-1)).toEqual({ kind: 'open' })
  expect(streams[0]?.lastId).toBe('9')
  const asked = polled.mock.calls.length
  await vi.advanceTimersByTimeAsync(20_000)
  expect(polled.mock.calls).toHaveLength(asked)
})

it('asks the store every five seconds where there are no locks', async () => {
  const without: Surroundings = { locks: undefined, openChannel: undefined, isHidden: () => false, onVisibility: () => () => {} }
  const live = createLive({ name: 'logs', url: '/stream', headers: () => ({}), poll: polled }, without)
  polled.mockResolvedValueOnce([{ event: 'log', id: '3', data: 'x' }])
  const { ids, states, stop } = listen(live)
  await vi.advanceTimersByTimeAsync(10_100)
  expect(states.at(-1)).toEqual({ kind: 'polling' })
  expect(ids).toEqual(['3'])
  expect(polled.mock.calls).toEqual([[''], ['3']])
  stop()
  await vi.advanceTimersByTimeAsync(10_000)
  expect(polled.mock.calls).toHaveLength(2)
  expect(streams).toHaveLength(0)
})
