import { useEffect, useRef, useState } from 'react'
import { play, type Failure } from '@/api/playground'
import type { Schemas } from '@/api/client'
import { asApiError } from '@/api/error'
import { refresh } from '@/api/query'
import { questionOf, targetOf, type ColumnSetup, type Setup } from './setup'

export interface Cell {
  state: 'waiting' | 'streaming' | 'done' | 'failed' | 'stopped'
  output: string
  ttftMs: number | null
  run: Schemas['PlaygroundRun'] | null
  failure: Failure | null
}

/** Answers by the id of their column. */
export type Cells = Readonly<Record<number, Cell>>

export interface Play {
  cells: Cells
  setCells(cells: Cells): void
  /** Asks the models of these columns in one stream. */
  start(setup: Setup, columns: readonly ColumnSetup[]): void
  stop(columnId: number): void
  stopAll(): void
}

const WAITING: Cell = { state: 'waiting', output: '', ttftMs: null, run: null, failure: null }

export function isBusy(cell: Cell | undefined): boolean {
  return cell?.state === 'waiting' || cell?.state === 'streaming'
}

/** Runs streams and keeps what they say. Pieces are drawn once a frame, however fast they come. */
export function usePlay(): Play {
  const [cells, setCells] = useState<Cells>({})
  const latest = useRef<Cells>({})
  const frame = useRef<number | null>(null)
  const streams = useRef(new Set<{ ids: number[]; abort: AbortController }>())

  const put = (id: number, change: Partial<Cell>) => {
    latest.current = { ...latest.current, [id]: { ...(latest.current[id] ?? WAITING), ...change } }
    frame.current ??= requestAnimationFrame(() => {
      frame.current = null
      setCells(latest.current)
    })
  }
  useEffect(() => () => streams.current.forEach((stream) => stream.abort.abort()), [])

  const start = (setup: Setup, columns: readonly ColumnSetup[]) => {
    const ids = columns.map((column) => column.id)
    const targets = columns.map((column) => targetOf(setup, column))
    const [only] = targets
    if (!only) return
    const stream = { ids, abort: new AbortController() }
    streams.current.add(stream)
    for (const id of ids) put(id, WAITING)
    const began = performance.now()
    const live = (id: number) => isBusy(latest.current[id])
    const follow = async () => {
      const question = questionOf(setup)
      const events = play(targets.length === 1 ? { path: 'run', body: { ...question, ...only } } : { path: 'compare', body: { ...question, targets } }, stream.abort.signal)
      for await (const event of events) {
        const id = ids[event.index]
        if (id === undefined || !live(id)) continue
        const cell = latest.current[id] ?? WAITING
        if (event.kind === 'delta') put(id, { state: 'streaming', output: cell.output + event.content, ttftMs: cell.ttftMs ?? performance.now() - began })
        else if (event.kind === 'done') put(id, { state: 'done', output: event.run.output, run: event.run })
        else if (event.kind === 'error') put(id, { state: 'failed', failure: event.failure })
      }
    }
    follow()
      .catch((error: unknown) => {
        if (stream.abort.signal.aborted) return
        const { code, message } = asApiError(error)
        for (const id of ids.filter(live)) put(id, { state: 'failed', failure: { code, message, logId: null } })
      })
      .finally(() => {
        streams.current.delete(stream)
        for (const id of ids.filter(live)) put(id, { state: 'stopped' })
        void refresh('/api/v1/playground/history')
      })
  }
  const stop = (columnId: number) => {
    if (isBusy(latest.current[columnId])) put(columnId, { state: 'stopped' })
    // When nobody listens any more the gateway ends the calls.
    for (const stream of streams.current) if (!stream.ids.some((id) => isBusy(latest.current[id]))) stream.abort.abort()
  }
  return {
    cells,
    setCells: (next) => {
      latest.current = next
      setCells(next)
    },
    start,
    stop,
    stopAll: () => [...streams.current].flatMap((stream) => stream.ids).forEach(stop),
  }
}
