import { useEffect, useEffectEvent } from 'react'
import { client, take, type Schemas } from '@/api/client'
import { failureOf } from '@/api/playground'
import { toast, toastError } from '@/ui'
import { FIRST_SETUP, messagesOf, NO_PARAMS, writeParams, type ColumnSetup, type Setup } from './setup'
import type { PlaygroundSearch } from './search'
import type { Cell, Cells } from './usePlay'

interface Begin {
  setup: Setup
  cells: Cells
}

/** Takes over what the address names: a logged request, a prompt, or a run of the history. */
export function useStart(search: PlaygroundSearch, current: Setup, begin: (found: Begin) => void, taken: () => void): void {
  const take = useEffectEvent((found: Begin) => begin(found))
  const done = useEffectEvent(() => taken())
  const setup = useEffectEvent(() => current)
  useEffect(() => {
    if (search.prompt === undefined) return
    const match = /^([^/]+)\/([^@]+)(?:@(\d+))?$/.exec(search.prompt)
    if (match?.[1] && match[2]) take({ setup: { ...setup(), prompt: { namespace: match[1], slug: match[2], version: match[3] ? Number(match[3]) : null, values: {} } }, cells: {} })
    done()
  }, [search.prompt])
  useEffect(() => {
    if (search.log === undefined) return
    fromLog(search.log)
      .then((found) => (found ? take(found) : toast('That request holds no conversation')), toastError)
      .finally(done)
  }, [search.log])
  useEffect(() => {
    if (search.run !== undefined) fromHistory(search.run).then(take, toastError)
  }, [search.run])
}

async function fromLog(logId: number): Promise<Begin | null> {
  const log = await take(client.GET('/api/v1/logs/{logId}', { params: { path: { logId } } }))
  const messages = messagesOf(log.request)
  if (!messages) return null
  const { temperature, max_tokens, top_p } = (log.request ?? {}) as Record<string, unknown>
  const target = log.attempts[0]
  return {
    setup: { messages, prompt: null, params: { ...writeParams({ temperature, max_tokens, top_p }), more: '' }, columns: [{ id: 1, provider: target?.provider ?? log.provider, model: target?.model ?? log.model ?? '', params: null }] },
    cells: {},
  }
}

async function fromHistory(playId: string): Promise<Begin> {
  const entry = await take(client.GET('/api/v1/playground/history/{playId}', { params: { path: { playId } } }))
  const results: readonly Schemas['PlaygroundResult'][] = 'results' in entry ? entry.results : [entry]
  const columns: ColumnSetup[] = results.map((result, at) => ({ id: at + 1, provider: result.provider, model: result.model, params: 'params' in result ? paramsOf(result.params) : null }))
  const cells = Object.fromEntries(results.map((result, at) => [at + 1, cellOf(result)]))
  const run = results.find((result) => 'messages' in result)
  const messages = run && messagesOf({ messages: run.messages })
  return { setup: { messages: messages ?? FIRST_SETUP.messages, prompt: null, params: NO_PARAMS, columns }, cells }
}

function paramsOf(params: unknown) {
  const written = writeParams(params)
  return Object.values(written).some((value) => value !== '') ? written : null
}

function cellOf(result: Schemas['PlaygroundResult']): Cell {
  if ('error' in result) return { state: 'failed', output: '', ttftMs: null, run: null, failure: failureOf(result.error, result.log_id) }
  return { state: 'done', output: result.output, ttftMs: null, run: result, failure: null }
}
