import { useEffect, useEffectEvent } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { isRecord } from '@/api/error'
import { parseFailure } from '@/api/playground'
import { plural } from '@/lib/format'
import { toast, toastError, toastWarning } from '@/ui'
import { hasLegacyFunctions, lostParams, lostParts, paramsOf as loggedParams, parseAnswer, parseMessages } from './fromLog'
import { columnsById, findSent } from './sentSetups'
import { callsOf, DEFAULT_SETUP, formatParams, NO_PARAMS, restoreSetup, type ColumnSetup, type Message, type Setup } from './setup'
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
    const match = /^([^/]+)\/([^@]+)(?:@([\w.-]+))?$/.exec(search.prompt)
    if (match?.[1] && match[2]) apply({ setup: { ...currentSetup(), prompt: { namespace: match[1], slug: match[2], version: match[3] === undefined ? null : /^\d+$/.test(match[3]) ? Number(match[3]) : match[3] }, draft: null }, results: {} })
    consume()
  }, [search.prompt])
  useEffect(() => {
    if (search.log === undefined) return
    fromLog(search.log)
      .then((initial) => (initial ? apply(initial) : toast('That request has no conversation')), toastError)
      .finally(consume)
  }, [search.log])
  useEffect(() => {
    if (search.run !== undefined) fromHistory(search.run).then(apply, toastError)
  }, [search.run])
}

async function fromLog(logId: number): Promise<InitialState | null> {
  const log = await unwrap(client.GET('/api/v1/logs/{logId}', { params: { path: { logId } } }))
  const messages = parseMessages(log.request)
  const prompt = promptOf(log)
  if (!messages && !(prompt && isRecord(log.request))) return null
  const lost = lostParts(log.request)
  if (lost > 0) toastWarning(`${plural(lost, 'part')} of the request cannot be sent from here${lostWords(log.request)}; everything else was taken over`)
  if (hasLegacyFunctions(log.request)) toast('This request used functions, the older form of tools in the OpenAI API; they were converted to tools')
  const target = log.attempts[0]
  return {
    setup: { ...DEFAULT_SETUP, messages: messages ?? DEFAULT_SETUP.messages, prompt, params: formatParams(loggedParams(log.request)), columns: [{ id: 1, provider: target?.provider ?? log.provider, model: target?.model ?? log.model ?? '', params: null }] },
    results: loggedAnswer(log, messages ?? []),
  }
}

/** The answer that was logged, from which the conversation can go on. */
function loggedAnswer({ id, status, response }: Schemas['LogDetail'], messages: readonly Message[]): ColumnResults {
  const answer = status < 400 ? parseAnswer(response, messages) : null
  return answer ? { 1: { state: 'done', output: answer.content, calls: answer.toolCalls ?? [], loggedId: id, ttftMs: null, run: null, failure: null } } : {}
}

/** The stored body is what the caller sent, without the prompt that the gateway inserted. */
function promptOf({ prompt, prompt_version: version }: Schemas['LogRow']): Setup['prompt'] {
  const [namespace, slug] = prompt?.split('/') ?? []
  return namespace && slug ? { namespace, slug, version } : null
}

function lostWords(body: unknown): string {
  const params = lostParams(body)
  return params.length === 0 ? ' (files, audio or tools that the provider runs)' : params.length === lostParts(body) ? `: ${params.join(', ')}` : `: ${params.join(', ')}, and files, audio or tools that the provider runs`
}

async function loadRuns(playId: string): Promise<readonly Schemas['PlaygroundResult'][]> {
  const entry = await unwrap(client.GET('/api/v1/playground/history/{playId}', { params: { path: { playId } } }))
  return 'results' in entry ? entry.results : [entry]
}

/** A run of this browser is restored with the prompts and variables of all its columns, others as they were sent. */
async function fromHistory(playId: string): Promise<InitialState> {
  const sent = findSent(playId)
  if (sent) {
    const groups = await Promise.all(columnsById(sent).map(async ([id, columnIds]) => ({ columnIds, stored: await loadRuns(id) })))
    const found = groups.flatMap(({ columnIds, stored }) => columnIds.flatMap((id, at) => (stored[at] ? [[id, toResult(stored[at])] as const] : [])))
    return { setup: restoreSetup(sent.setup), results: Object.fromEntries(found) }
  }
  const stored = await loadRuns(playId)
  const columns: ColumnSetup[] = stored.map((result, at) => ({ id: at + 1, provider: result.provider, model: result.model, params: 'params' in result ? paramsOf(result.params) : null }))
  const results = Object.fromEntries(stored.map((result, at) => [at + 1, toResult(result)]))
  const run = stored.find((result) => 'messages' in result)
  const messages = run && parseMessages({ messages: run.messages })
  return { setup: { ...DEFAULT_SETUP, messages: messages ?? DEFAULT_SETUP.messages, params: NO_PARAMS, columns }, results }
}

function paramsOf(params: unknown) {
  const formatted = formatParams(params)
  return Object.values(formatted).some((value) => value !== '') ? formatted : null
}

function toResult(result: Schemas['PlaygroundResult']): ColumnResult {
  if ('error' in result) return { state: 'failed', output: '', calls: [], loggedId: null, ttftMs: null, run: null, failure: parseFailure(result.error, result.log_id) }
  return { state: 'done', output: result.output, calls: callsOf(result.tool_calls), loggedId: null, ttftMs: null, run: result, failure: null }
}
