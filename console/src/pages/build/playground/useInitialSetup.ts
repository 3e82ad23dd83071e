import { useEffect, useEffectEvent } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { parseFailure } from '@/api/playground'
import { plural } from '@/lib/format'
import { toast, toastError, toastWarning } from '@/ui'
import { DEFAULT_SETUP, lostParts, parseMessages, NO_PARAMS, formatParams, type ColumnSetup, type Setup } from './setup'
import type { PlaygroundSearch } from './search'
import type { ColumnResult, ColumnResults } from './usePlaygroundRuns'

interface InitialState {
  setup: Setup
  results: ColumnResults
}

/** Loads the setup named in the URL: a logged request, a prompt or a run of the history. */
export function useInitialSetup(search: PlaygroundSearch, current: Setup, onLoaded: (initial: InitialState) => void, onConsumed: () => void): void {
  const apply = useEffectEvent((initial: InitialState) => onLoaded(initial))
  const consume = useEffectEvent(() => onConsumed())
  const currentSetup = useEffectEvent(() => current)
  useEffect(() => {
    if (search.prompt === undefined) return
    const match = /^([^/]+)\/([^@]+)(?:@(\d+))?$/.exec(search.prompt)
    if (match?.[1] && match[2]) apply({ setup: { ...currentSetup(), prompt: { namespace: match[1], slug: match[2], version: match[3] ? Number(match[3]) : null, values: {} } }, results: {} })
    consume()
  }, [search.prompt])
  useEffect(() => {
    if (search.log === undefined) return
    fromLog(search.log)
      .then((initial) => (initial ? apply(initial) : toast('That request holds no conversation')), toastError)
      .finally(consume)
  }, [search.log])
  useEffect(() => {
    if (search.run !== undefined) fromHistory(search.run).then(apply, toastError)
  }, [search.run])
}

async function fromLog(logId: number): Promise<InitialState | null> {
  const log = await unwrap(client.GET('/api/v1/logs/{logId}', { params: { path: { logId } } }))
  const messages = parseMessages(log.request)
  if (!messages) return null
  const { temperature, max_tokens, top_p, tools, tool_choice, response_format } = (log.request ?? {}) as Record<string, unknown>
  const more = Object.fromEntries(Object.entries({ tools, tool_choice, response_format }).filter(([, value]) => value !== undefined))
  const lost = lostParts(log.request)
  if (lost > 0) toastWarning(`${plural(lost, 'part')} of the request (tool calls, tool results or files) cannot be edited here: only the texts were taken over`)
  const target = log.attempts[0]
  return {
    setup: { messages, prompt: null, params: { ...formatParams({ temperature, max_tokens, top_p }), more: Object.keys(more).length > 0 ? JSON.stringify(more) : '' }, columns: [{ id: 1, provider: target?.provider ?? log.provider, model: target?.model ?? log.model ?? '', params: null }] },
    results: {},
  }
}

async function fromHistory(playId: string): Promise<InitialState> {
  const entry = await unwrap(client.GET('/api/v1/playground/history/{playId}', { params: { path: { playId } } }))
  const stored: readonly Schemas['PlaygroundResult'][] = 'results' in entry ? entry.results : [entry]
  const columns: ColumnSetup[] = stored.map((result, at) => ({ id: at + 1, provider: result.provider, model: result.model, params: 'params' in result ? paramsOf(result.params) : null }))
  const results = Object.fromEntries(stored.map((result, at) => [at + 1, toResult(result)]))
  const run = stored.find((result) => 'messages' in result)
  const messages = run && parseMessages({ messages: run.messages })
  return { setup: { messages: messages ?? DEFAULT_SETUP.messages, prompt: null, params: NO_PARAMS, columns }, results }
}

function paramsOf(params: unknown) {
  const formatted = formatParams(params)
  return Object.values(formatted).some((value) => value !== '') ? formatted : null
}

function toResult(result: Schemas['PlaygroundResult']): ColumnResult {
  if ('error' in result) return { state: 'failed', output: '', ttftMs: null, run: null, failure: parseFailure(result.error, result.log_id) }
  return { state: 'done', output: result.output, ttftMs: null, run: result, failure: null }
}
