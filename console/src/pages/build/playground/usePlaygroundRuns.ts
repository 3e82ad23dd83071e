import { useEffect, useRef, useState } from 'react'
import { streamRuns, type RunFailure } from '@/api/playground'
import type { Schemas } from '@/api/client'
import { asApiError } from '@/api/error'
import { invalidate } from '@/api/query'
import { addPieces, type PartialCall } from './callPieces'
import { keepSent } from './sentSetups'
import { callsOf, compareTarget, requestInput, type ColumnSetup, type Setup, type ToolCall } from './setup'

export interface ColumnResult {
  state: 'waiting' | 'streaming' | 'done' | 'failed' | 'stopped'
  output: string
  /** Tools that the model calls in its answer. While it answers, they may be incomplete. */
  calls: readonly ToolCall[]
  /** The row of an answer that was logged, not made here. */
  loggedId: number | null
  ttftMs: number | null
  run: Schemas['PlaygroundRun'] | null
  failure: RunFailure | null
}

/** Results by column id. */
export type ColumnResults = Readonly<Record<number, ColumnResult>>

export interface PlaygroundRuns {
  results: ColumnResults
  setResults(results: ColumnResults): void
  /** Runs the models of these columns. */
  start(setup: Setup, columns: readonly ColumnSetup[]): void
  stop(columnId: number): void
  stopAll(): void
}

const PENDING_RESULT: ColumnResult = { state: 'waiting', output: '', calls: [], loggedId: null, ttftMs: null, run: null, failure: null }

export function isRunning(result: ColumnResult | undefined): boolean {
  return result?.state === 'waiting' || result?.state === 'streaming'
}

/** Runs streams and collects their results. Updates are batched to one per animation frame. */
export function usePlaygroundRuns(): PlaygroundRuns {
  const [results, setResults] = useState<ColumnResults>({})
  const latestResults = useRef<ColumnResults>({})
  const frame = useRef<number | null>(null)
  const streams = useRef(new Set<{ ids: number[]; abort: AbortController }>())

  const update = (id: number, change: Partial<ColumnResult>) => {
    latestResults.current = { ...latestResults.current, [id]: { ...(latestResults.current[id] ?? PENDING_RESULT), ...change } }
    frame.current ??= requestAnimationFrame(() => {
      frame.current = null
      setResults(latestResults.current)
    })
  }
  useEffect(() => () => streams.current.forEach((stream) => stream.abort.abort()), [])

  const start = (setup: Setup, columns: readonly ColumnSetup[]) => {
    // One stream for all columns with the same input.
    const groups = new Map<string, ColumnSetup[]>()
    for (const column of columns) {
      const key = JSON.stringify(column.prompt ?? null)
      groups.set(key, [...(groups.get(key) ?? []), column])
    }
    const runs: Record<number, string> = {}
    const onStored = (ids: readonly number[], historyId: string) => {
      for (const id of ids) runs[id] = historyId
      keepSent({ setup: { ...setup, columns: [...columns] }, runs })
    }
    for (const group of groups.values()) startGroup(setup, group, onStored)
  }
  const startGroup = (setup: Setup, columns: readonly ColumnSetup[], onStored: (ids: readonly number[], historyId: string) => void) => {
    const ids = columns.map((column) => column.id)
    const targets = columns.map((column) => compareTarget(setup, column))
    const [only] = targets
    if (!only) return
    const stream = { ids, abort: new AbortController() }
    streams.current.add(stream)
    for (const id of ids) update(id, PENDING_RESULT)
    const startedAt = performance.now()
    const isActive = (id: number) => isRunning(latestResults.current[id])
    const pieces = new Map<number, readonly PartialCall[]>()
    const consume = async () => {
      const input = requestInput(setup, columns[0])
      const events = streamRuns(targets.length === 1 ? { path: 'run', body: { ...input, ...only } } : { path: 'compare', body: { ...input, targets } }, stream.abort.signal)
      for await (const event of events) {
        const id = ids[event.index]
        if (id === undefined || !isActive(id)) continue
        const result = latestResults.current[id] ?? PENDING_RESULT
        if (event.kind === 'delta') {
          const calls = addPieces(pieces.get(id) ?? [], event.toolCalls)
          pieces.set(id, calls)
          update(id, { state: 'streaming', output: result.output + event.content, calls: calls.map(({ call }) => call), ttftMs: result.ttftMs ?? performance.now() - startedAt })
        } else if (event.kind === 'done') {
          update(id, { state: 'done', output: event.run.output, calls: callsOf(event.run.tool_calls), run: event.run })
          onStored(ids, event.run.comparison_id ?? event.run.id)
        } else if (event.kind === 'error') update(id, { state: 'failed', failure: event.failure })
      }
    }
    consume()
      .catch((error: unknown) => {
        if (stream.abort.signal.aborted) return
        const { code, message } = asApiError(error)
        for (const id of ids.filter(isActive)) update(id, { state: 'failed', failure: { code, message, logId: null } })
      })
      .finally(() => {
        streams.current.delete(stream)
        for (const id of ids.filter(isActive)) update(id, { state: 'stopped' })
        void invalidate('/api/v1/playground/history')
      })
  }
  const stop = (columnId: number) => {
    if (isRunning(latestResults.current[columnId])) update(columnId, { state: 'stopped' })
    // Closing the stream makes the gateway cancel the model calls.
    for (const stream of streams.current) if (!stream.ids.some((id) => isRunning(latestResults.current[id]))) stream.abort.abort()
  }
  return {
    results,
    setResults: (next) => {
      latestResults.current = next
      setResults(next)
    },
    start,
    stop,
    stopAll: () => [...streams.current].flatMap((stream) => stream.ids).forEach(stop),
  }
}
