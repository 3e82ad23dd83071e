/**
 * One stream for the whole browser. A browser opens six connections to an origin, and a stream holds one for as long as
 * it lasts: seven tabs with a stream each would hang. So one tab, the one that holds a lock, follows the stream and tells
 * the others what came. When it closes, or nobody has looked at it for a minute, the next one takes over behind the last
 * event. Where the browser has no locks (plain http on another machine), every tab asks again and again instead.
 */
import { follow, type LinkState, type ServerEvent } from './sse'

export type LiveState = LinkState | { kind: 'polling' }

export interface LiveSource {
  /** Tabs with the same name share one stream. */
  name: string
  url: string
  headers: () => Record<string, string>
  /** What came behind an id, oldest first; used while there is no stream. */
  poll: (afterId: string) => Promise<ServerEvent[]>
  pollEveryMs?: number
}

export interface Live {
  /** Until the answer is called, events and states are told. */
  subscribe: (onEvent: (event: ServerEvent) => void, onState: (state: LiveState) => void) => () => void
}

type Note = { event: ServerEvent } | { state: LiveState; lastId: string } | { hello: true }

/** What is taken from the browser, so that tests can stand in for it. */
export interface Surroundings {
  locks: Pick<LockManager, 'request'> | undefined
  openChannel: ((name: string) => BroadcastChannel) | undefined
  isHidden: () => boolean
  onVisibility: (listener: () => void) => () => void
}

const POLL_EVERY_MS = 5_000
const HIDDEN_LIMIT_MS = 60_000
/** From so many failures in a row on, the store is asked while the stream is down. */
const FAILURES_BEFORE_POLLING = 3

export function createLive(source: LiveSource, around: Surroundings = browser()): Live {
  const listeners = new Set<{ onEvent: (event: ServerEvent) => void; onState: (state: LiveState) => void }>()
  let state: LiveState = { kind: 'connecting' }
  let lastId = ''
  let stop: (() => void) | null = null

  const tell = (event: ServerEvent): void => {
    if (event.id !== '') lastId = event.id
    for (const listener of listeners) listener.onEvent(event)
  }
  const change = (next: LiveState): void => {
    state = next
    for (const listener of listeners) listener.onState(next)
  }

  function start(): () => void {
    const { locks, openChannel } = around
    return locks && openChannel ? share(locks, openChannel(`console.live.${source.name}`)) : pollOnly()
  }

  function share(locks: Pick<LockManager, 'request'>, channel: BroadcastChannel): () => void {
    let leading: AbortController | null = null
    let isLeader = false
    let hiddenTimer: ReturnType<typeof setTimeout> | undefined
    const post = (note: Note): void => channel.postMessage(note)
    const announce = (next: LiveState): void => {
      change(next)
      post({ state: next, lastId })
    }
    channel.onmessage = ({ data: note }: MessageEvent<Note>) => {
      if ('event' in note) tell(note.event)
      else if ('state' in note) {
        if (lastId === '') lastId = note.lastId
        change(note.state)
      } else if (isLeader) post({ state, lastId })
    }

    async function lead(signal: AbortSignal): Promise<void> {
      isLeader = true
      const onEvent = (event: ServerEvent): void => {
        tell(event)
        post({ event })
      }
      const polling: { end: (() => void) | null } = { end: null }
      const endPolling = (): void => {
        polling.end?.()
        polling.end = null
      }
      await follow({
        ...source,
        lastId: () => lastId,
        signal,
        onEvent,
        onState: (next) => {
          const isDown = next.kind === 'waiting' && next.failures >= FAILURES_BEFORE_POLLING
          if (isDown) polling.end ??= repeatPoll(onEvent)
          if (next.kind === 'open' || next.kind === 'refused') endPolling()
          announce(polling.end ? { kind: 'polling' } : next)
        },
      })
      endPolling()
      isLeader = false
    }

    function want(): void {
      if (leading) return
      const controller = new AbortController()
      leading = controller
      void locks
        .request(`console.live.${source.name}`, { signal: controller.signal }, () => lead(controller.signal))
        // Given up while waiting for the lock.
        .catch(() => undefined)
    }
    function giveUp(): void {
      leading?.abort()
      leading = null
    }
    const offVisibility = around.onVisibility(() => {
      clearTimeout(hiddenTimer)
      if (around.isHidden()) hiddenTimer = setTimeout(giveUp, HIDDEN_LIMIT_MS)
      else want()
    })
    post({ hello: true })
    want()
    return () => {
      clearTimeout(hiddenTimer)
      offVisibility()
      giveUp()
      channel.close()
    }
  }

  function pollOnly(): () => void {
    change({ kind: 'polling' })
    return repeatPoll(tell)
  }

  function repeatPoll(onEvent: (event: ServerEvent) => void): () => void {
    const timer = setInterval(() => {
      if (around.isHidden()) return
      // A poll that fails is followed by the next one.
      source.poll(lastId).then((events) => events.forEach(onEvent), () => undefined)
    }, source.pollEveryMs ?? POLL_EVERY_MS)
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

function browser(): Surroundings {
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
