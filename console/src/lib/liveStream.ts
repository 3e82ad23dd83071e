/**
 * One event stream shared by all tabs of the browser. Browsers allow six HTTP/1.1 connections per origin, and each
 * stream occupies one, so a stream per tab would block the seventh tab. The tab that holds a Web Lock is the leader: it
 * reads the stream and broadcasts events to the other tabs. When the leader closes, or is hidden for a minute, another
 * tab takes over and resumes after the last event. Without Web Locks (plain http on another host) every tab polls.
 */
import { followStream, type ConnectionState, type ServerEvent } from './sse'

export type LiveState = ConnectionState | { kind: 'polling' }

export interface LiveStreamOptions {
  /** Tabs with the same name share one stream. */
  name: string
  url: string
  headers: () => Record<string, string>
  /** Returns the events after an id, oldest first; used while the stream is unavailable. */
  poll: (afterId: string) => Promise<ServerEvent[]>
  pollIntervalMs?: number
}

export interface LiveStream {
  /** Returns a function that unsubscribes. */
  subscribe: (onEvent: (event: ServerEvent) => void, onState: (state: LiveState) => void) => () => void
}

type ChannelMessage = { event: ServerEvent } | { state: LiveState; lastId: string } | { hello: true }

/** Browser APIs, injectable for tests. */
export interface BrowserEnv {
  locks: Pick<LockManager, 'request'> | undefined
  openChannel: ((name: string) => BroadcastChannel) | undefined
  isHidden: () => boolean
  onVisibility: (listener: () => void) => () => void
}

const POLL_INTERVAL_MS = 5_000
const HIDDEN_TIMEOUT_MS = 60_000
/** After this number of consecutive failures, poll until the stream reconnects. */
const MAX_FAILURES_BEFORE_POLLING = 3

export function createLiveStream(options: LiveStreamOptions, env: BrowserEnv = browserEnv()): LiveStream {
  const listeners = new Set<{ onEvent: (event: ServerEvent) => void; onState: (state: LiveState) => void }>()
  let state: LiveState = { kind: 'connecting' }
  let lastId = ''
  let stop: (() => void) | null = null

  const emit = (event: ServerEvent): void => {
    if (event.id !== '') lastId = event.id
    for (const listener of listeners) listener.onEvent(event)
  }
  const setState = (next: LiveState): void => {
    state = next
    for (const listener of listeners) listener.onState(next)
  }

  function start(): () => void {
    const { locks, openChannel } = env
    return locks && openChannel ? shareAcrossTabs(locks, openChannel(`console.live.${options.name}`)) : pollOnly()
  }

  function shareAcrossTabs(locks: Pick<LockManager, 'request'>, channel: BroadcastChannel): () => void {
    let leadership: AbortController | null = null
    let isLeader = false
    let hiddenTimer: ReturnType<typeof setTimeout> | undefined
    const post = (message: ChannelMessage): void => channel.postMessage(message)
    const broadcastState = (next: LiveState): void => {
      setState(next)
      post({ state: next, lastId })
    }
    channel.onmessage = ({ data: message }: MessageEvent<ChannelMessage>) => {
      if ('event' in message) emit(message.event)
      else if ('state' in message) {
        if (lastId === '') lastId = message.lastId
        setState(message.state)
      } else if (isLeader) post({ state, lastId })
    }

    async function lead(signal: AbortSignal): Promise<void> {
      isLeader = true
      const onEvent = (event: ServerEvent): void => {
        emit(event)
        post({ event })
      }
      const fallback: { end: (() => void) | null } = { end: null }
      const stopFallback = (): void => {
        fallback.end?.()
        fallback.end = null
      }
      await followStream({
        ...options,
        lastId: () => lastId,
        signal,
        onEvent,
        onState: (next) => {
          const isDown = next.kind === 'waiting' && next.failures >= MAX_FAILURES_BEFORE_POLLING
          if (isDown) fallback.end ??= startPolling(onEvent)
          if (next.kind === 'open' || next.kind === 'refused') stopFallback()
          broadcastState(fallback.end ? { kind: 'polling' } : next)
        },
      })
      stopFallback()
      isLeader = false
    }

    function acquire(): void {
      if (leadership) return
      const controller = new AbortController()
      leadership = controller
      void locks
        .request(`console.live.${options.name}`, { signal: controller.signal }, () => lead(controller.signal))
        // Released while waiting for the lock.
        .catch(() => undefined)
    }
    function release(): void {
      leadership?.abort()
      leadership = null
    }
    const removeVisibilityListener = env.onVisibility(() => {
      clearTimeout(hiddenTimer)
      if (env.isHidden()) hiddenTimer = setTimeout(release, HIDDEN_TIMEOUT_MS)
      else acquire()
    })
    post({ hello: true })
    acquire()
    return () => {
      clearTimeout(hiddenTimer)
      removeVisibilityListener()
      release()
      channel.close()
    }
  }

  function pollOnly(): () => void {
    setState({ kind: 'polling' })
    return startPolling(emit)
  }

  function startPolling(onEvent: (event: ServerEvent) => void): () => void {
    const timer = setInterval(() => {
      if (env.isHidden()) return
      // The next poll retries.
      options.poll(lastId).then((events) => events.forEach(onEvent), () => undefined)
    }, options.pollIntervalMs ?? POLL_INTERVAL_MS)
    return () => clearInterval(timer)
  }

  return {
    subscribe(onEvent, onState) {
      const listener = { onEvent, onState }
      listeners.add(listener)
      onState(state)
      stop ??= start()
      return () => {
        listeners.delete(listener)
        if (listeners.size > 0) return
        stop?.()
        stop = null
        state = { kind: 'connecting' }
        lastId = ''
      }
    },
  }
}

function browserEnv(): BrowserEnv {
  return {
    locks: globalThis.navigator?.locks,
    openChannel: 'BroadcastChannel' in globalThis ? (name) => new BroadcastChannel(name) : undefined,
    isHidden: () => document.hidden,
    onVisibility: (listener) => {
      document.addEventListener('visibilitychange', listener)
      return () => document.removeEventListener('visibilitychange', listener)
    },
  }
}
