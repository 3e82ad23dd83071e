import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { createLiveStream, type LiveStream, type LiveState, type BrowserEnv } from './liveStream'
import type { ServerEvent } from './sse'

/** In-memory Web Lock and BroadcastChannel, shared by the tabs of one test. */
function fakeBrowser(): { tab: (url?: string) => { live: LiveStream; hide: (hidden: boolean) => void } } {
  let lockQueue: Promise<unknown> = Promise.resolve()
  const channels = new Set<{ onmessage: ((message: { data: unknown }) => void) | null }>()
  return {
    tab() {
      let hidden = false
      const listeners = new Set<() => void>()
      const env: BrowserEnv = {
        locks: {
          request: ((_name: string, options: { signal: AbortSignal }, work: () => Promise<unknown>) => {
            const granted = lockQueue.then(() => (options.signal.aborted ? undefined : work()))
            lockQueue = granted
            return granted
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
      const live = createLiveStream({ name: 'logs', url: '/stream', headers: () => ({}), poll }, env)
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

const poll = vi.fn((_after: string): Promise<ServerEvent[]> => Promise.resolve([]))
let streams: { lastId: string | null; send: (text: string) => void; open: boolean }[] = []
let isDown = false

beforeEach(() => {
  vi.useFakeTimers()
  streams = []
  isDown = false
  poll.mockClear()
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

function listen(live: LiveStream): { ids: string[]; states: LiveState[]; stop: () => void } {
  const received = { ids: [] as string[], states: [] as LiveState[] }
  return { ...received, stop: live.subscribe((event) => received.ids.push(event.id), (state) => received.states.push(state)) }
}

const flush = (): Promise<unknown> => vi.advanceTimersByTimeAsync(10)

it('opens one stream for all tabs, and every tab receives all events', async () => {
  const { tab } = fakeBrowser()
  const [first, second] = [listen(tab().live), listen(tab().live)]
  await flush()
  expect(streams).toHaveLength(1)
  streams[0]?.send('id: 5\ndata: x\n\n')
  await flush()
  expect(first.ids).toEqual(['5'])
  expect(second.ids).toEqual(['5'])
  expect(second.states.at(-1)).toEqual({ kind: 'open' })
})

it('another tab resumes after the last event when the leader closes', async () => {
  const { tab } = fakeBrowser()
  const [first, second] = [listen(tab().live), listen(tab().live)]
  await flush()
  streams[0]?.send('id: 5\ndata: x\n\n')
  await flush()
  first.stop()
  await flush()
  expect(streams.map((stream) => stream.open)).toEqual([false, true])
  expect(streams[1]?.lastId).toBe('5')
  streams[1]?.send('id: 6\ndata: y\n\n')
  await flush()
  expect(second.ids).toEqual(['5', '6'])
  expect(first.ids).toEqual(['5'])
})

it('a tab hidden for a minute releases the stream and resumes it when visible', async () => {
  const { tab } = fakeBrowser()
  const only = tab()
  const { ids } = listen(only.live)
  await flush()
  streams[0]?.send('id: 5\ndata: x\n\n')
  await flush()
  only.hide(true)
  await vi.advanceTimersByTimeAsync(59_000)
  expect(streams[0]?.open).toBe(true)
  await vi.advanceTimersByTimeAsync(2_000)
  expect(streams[0]?.open).toBe(false)
  only.hide(false)
  await flush()
  expect(streams[1]?.lastId).toBe('5')
  streams[1]?.send('id: 6\ndata: y\n\n')
  await flush()
  expect(ids).toEqual(['5', '6'])
})

it('polls while the stream keeps failing, and stops when it reconnects', async () => {
  const { tab } = fakeBrowser()
  isDown = true
  poll.mockResolvedValueOnce([{ event: 'log', id: '9', data: 'x' }])
  const { ids, states } = listen(tab().live)
  await vi.advanceTimersByTimeAsync(15_000)
  expect(states.at(-1)).toEqual({ kind: 'polling' })
  expect(ids).toEqual(['9'])
  isDown = false
  await vi.advanceTimersByTimeAsync(31_000)
  expect(states.at(-1)).toEqual({ kind: 'open' })
  expect(streams[0]?.lastId).toBe('9')
  const calls = poll.mock.calls.length
  await vi.advanceTimersByTimeAsync(20_000)
  expect(poll.mock.calls).toHaveLength(calls)
})

it('polls every five seconds without Web Locks', async () => {
  const env: BrowserEnv = { locks: undefined, openChannel: undefined, isHidden: () => false, onVisibility: () => () => {} }
  const live = createLiveStream({ name: 'logs', url: '/stream', headers: () => ({}), poll }, env)
  poll.mockResolvedValueOnce([{ event: 'log', id: '3', data: 'x' }])
  const { ids, states, stop } = listen(live)
  await vi.advanceTimersByTimeAsync(10_100)
  expect(states.at(-1)).toEqual({ kind: 'polling' })
  expect(ids).toEqual(['3'])
  expect(poll.mock.calls).toEqual([[''], ['3']])
  stop()
  await vi.advanceTimersByTimeAsync(10_000)
  expect(poll.mock.calls).toHaveLength(2)
  expect(streams).toHaveLength(0)
})
