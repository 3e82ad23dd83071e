/** Playground setup: input, parameters and target models. */
import type { Schemas } from '@/api/client'
import { isRecord } from '@/api/error'
import type { RunTarget } from '@/lib/runs'
import { renderPreview, variablesOf } from '@/lib/template'
import type { PromptTarget } from '../shared/PromptPicker'

export const ROLES = ['system', 'user', 'assistant', 'tool'] as const
export type Role = (typeof ROLES)[number]

export interface Message {
  role: Role
  content: string
  /** Data URLs, or remote URLs, which the console does not load. */
  images?: string[]
  /** Tool calls of an assistant message, as in chat completions. */
  toolCalls?: ToolCall[]
  /** The call that a tool message answers. */
  toolCallId?: string
}

/** What a provider adds to a call is kept, because it may expect it back. */
export interface ToolCall {
  id: string
  type: 'function'
  function: { name: string; arguments: string }
  [extra: string]: unknown
}

/** Raw input text; empty parameters are omitted. */
export interface Params {
  temperature: string
  max_tokens: string
  top_p: string
  /** Tools as a JSON array. */
  tools: string
  /** JSON schema of the answer, or its definition with `name` and `schema`. */
  schema: string
  /** Other parameters as a JSON object. */
  more: string
}

export interface ColumnSetup {
  id: number
  provider: string
  model: string
  /** Overrides of the shared parameters, or null. */
  params: Params | null
  /** A prompt of its own; none for that of all columns. */
  prompt?: PromptTarget | null
}

export interface Setup {
  messages: Message[]
  prompt: PromptTarget | null
  /** Changed text of the prompt, which is not saved yet. */
  draft: string | null
  /** Values of variables in the prompts and the messages. */
  values: Record<string, string>
  params: Params
  columns: ColumnSetup[]
}

export const NO_PARAMS: Params = { temperature: '', max_tokens: '', top_p: '', tools: '', schema: '', more: '' }
export const MAX_COLUMNS = 10
export const DEFAULT_SETUP: Setup = {
  messages: [{ role: 'user', content: '' }],
  prompt: null,
  draft: null,
  values: {},
  params: NO_PARAMS,
  columns: [{ id: 1, provider: 'sandbox', model: 'sandbox-small', params: null }],
}

/** A setup that this browser has kept; earlier versions lack some fields and had the values in the prompt. */
export function restoreSetup(kept: Partial<Setup> & { prompt?: (PromptTarget & { values?: Record<string, string> }) | null }): Setup {
  const { prompt = null, values, ...rest } = kept
  return {
    ...DEFAULT_SETUP,
    ...rest,
    prompt: prompt && { namespace: prompt.namespace, slug: prompt.slug, version: prompt.version },
    values: values ?? prompt?.values ?? {},
    params: { ...NO_PARAMS, ...kept.params },
    columns: (kept.columns ?? DEFAULT_SETUP.columns).map((column) => ({ ...column, params: column.params && { ...NO_PARAMS, ...column.params } })),
  }
}

const NUMERIC_PARAMS = ['temperature', 'max_tokens', 'top_p'] as const

/** Parses the parameters, or returns the validation error. */
export function parseParams(params: Params): { value: Record<string, unknown>; problem: null } | { value: null; problem: string } {
  const value: Record<string, unknown> = {}
  for (const name of NUMERIC_PARAMS) {
    if (params[name].trim() === '') continue
    const number = Number(params[name])
    if (!Number.isFinite(number)) return { value: null, problem: `${name} must be a number` }
    value[name] = number
  }
  const tools = parseJson(params.tools)
  if (tools !== undefined && !Array.isArray(tools)) return { value: null, problem: 'Tools must be a JSON array' }
  if (tools) value['tools'] = tools
  const schema = parseJson(params.schema)
  if (schema !== undefined && !isRecord(schema)) return { value: null, problem: 'The JSON schema must be a JSON object' }
  if (schema) value['response_format'] = { type: 'json_schema', json_schema: isDefinition(schema) ? schema : { name: 'answer', schema } }
  const more = parseJson(params.more)
  if (more !== undefined && !isRecord(more)) return { value: null, problem: 'Extra parameters must be a JSON object' }
  return { value: { ...value, ...more }, problem: null }
}

/** Whether a schema has its name with it, and perhaps `strict`. */
function isDefinition(schema: Record<string, unknown>): boolean {
  return typeof schema['name'] === 'string' && isRecord(schema['schema'])
}

/** Names of the tools that a text defines; null if it is not a list of functions. */
export function toolNames(text: string): string[] | null {
  const tools = parseJson(text)
  if (!Array.isArray(tools)) return null
  return tools.map((tool: unknown) => {
    const definition = isRecord(tool) && isRecord(tool['function']) ? tool['function'] : tool
    return isRecord(definition) && typeof definition['name'] === 'string' && definition['name'] !== '' ? definition['name'] : 'unnamed'
  })
}

const NEW_TOOL = { type: 'function', function: { name: 'new_tool', description: '', parameters: { type: 'object', properties: {} } } }

/** The tools with another one to fill in. Tools that are not a list are not changed. */
export function addTool(text: string): string {
  const tools = text.trim() === '' ? [] : parseJson(text)
  return Array.isArray(tools) ? JSON.stringify([...(tools as unknown[]), NEW_TOOL], null, 2) : text
}

/** Undefined for an empty text, null for one that is not valid JSON. */
function parseJson(text: string): unknown {
  if (text.trim() === '') return undefined
  try {
    return JSON.parse(text) as unknown
  } catch {
    return null
  }
}

export function formatParams(params: unknown): Params {
  if (!isRecord(params)) return NO_PARAMS
  const { temperature, max_tokens, top_p, tools, response_format, ...more } = params
  const text = (value: unknown) => (typeof value === 'number' ? String(value) : '')
  const definition = isRecord(response_format) && isRecord(response_format['json_schema']) ? response_format['json_schema'] : undefined
  const isPlain = definition?.['name'] === 'answer' && Object.keys(definition).length === 2
  const schema = isPlain || (definition && !isDefinition(definition)) ? definition?.['schema'] : definition
  const others = schema === undefined && response_format !== undefined ? { ...more, response_format } : more
  return {
    temperature: text(temperature),
    max_tokens: text(max_tokens),
    top_p: text(top_p),
    tools: Array.isArray(tools) && tools.length > 0 ? JSON.stringify(tools, null, 2) : '',
    schema: schema === undefined ? '' : JSON.stringify(schema, null, 2),
    more: Object.keys(others).length > 0 ? JSON.stringify(others) : '',
  }
}

/** The result of a tool may be empty. */
function isEmpty({ role, content, images, toolCalls, toolCallId }: Message): boolean {
  return content.trim() === '' && !(role === 'user' && images?.length) && !(role === 'assistant' && toolCalls?.length) && !(role === 'tool' && toolCallId)
}

/** Calls before a message that have no other result: those it can answer. */
export function openCalls(messages: readonly Message[], at: number): ToolCall[] {
  const answered = messages.flatMap((message, index) => (index !== at && message.role === 'tool' ? [message.toolCallId] : []))
  return messages.slice(0, at).flatMap((message) => (message.role === 'assistant' ? (message.toolCalls ?? []) : [])).filter((call) => !answered.includes(call.id))
}

/** Why the tool calls and results of the messages would be refused by providers, or null. */
function toolProblem(messages: readonly Message[]): string | null {
  for (const [at, { role, toolCalls, toolCallId }] of messages.entries()) {
    if (role === 'assistant' && toolCalls?.some((call) => call.function.name.trim() === '')) return `Name the tool that message ${at + 1} calls`
    if (role === 'tool' && !toolCallId) return `Choose the call that message ${at + 1} answers`
  }
  return null
}

/** The tool calls of an answer. Calls of another kind cannot be sent again. */
export function callsOf(calls: readonly unknown[] | undefined): ToolCall[] {
  return (calls ?? []).filter((call): call is ToolCall => isRecord(call) && isRecord(call['function']) && typeof call['function']['name'] === 'string' && typeof call['function']['arguments'] === 'string').map((call, at) => (typeof call.id === 'string' && call.id !== '' ? call : { ...call, id: `call_${at + 1}`, type: 'function' }))
}

/** The messages after an answer: the answer, and what comes next, a result for each of its calls or a message of the user. */
export function continued(messages: readonly Message[], output: string, calls: readonly ToolCall[]): Message[] {
  const answer: Message = { role: 'assistant', content: output, ...(calls.length > 0 && { toolCalls: [...calls] }) }
  const next: Message[] = calls.length > 0 ? calls.map((call) => ({ role: 'tool', content: '', toolCallId: call.id })) : [{ role: 'user', content: '' }]
  return [...messages.filter((message) => !isEmpty(message)), answer, ...next]
}

/** Why the conversation cannot go on from an answer, or null. */
export function continuationProblem(messages: readonly Message[], output: string, calls: readonly ToolCall[]): string | null {
  if (output === '' && calls.length === 0) return 'The answer is empty'
  if (messages.every(isEmpty)) return 'Write a message first: the prompt alone was sent as the user message'
  const isTaken = (message: Message) => message.role === 'assistant' && message.content === output && JSON.stringify((message.toolCalls ?? []).map((call) => call.id)) === JSON.stringify(calls.map((call) => call.id))
  return messages.some(isTaken) ? 'The answer is already one of the messages' : null
}

function hasMessages(setup: Pick<Setup, 'messages'>): boolean {
  return !setup.messages.every(isEmpty)
}

/** Returns the validation error of a setup, or null. */
export function validateSetup(setup: Setup): string | null {
  const unprompted = setup.columns.some((column) => !(column.prompt ?? setup.prompt))
  if (unprompted && !hasMessages(setup)) return 'Write a message first'
  if (setup.columns.some((column) => column.provider === '' || column.model.trim() === '')) return 'Choose a model for every column'
  const wrongTools = toolProblem(setup.messages)
  if (wrongTools !== null) return wrongTools
  return paramProblem(setup)
}

function paramProblem(setup: Setup): string | null {
  return [setup.params, ...setup.columns.flatMap((column) => column.params ?? [])].map((params) => parseParams(params).problem).find((problem) => problem !== null) ?? null
}

/** Variables of the messages and of a changed prompt. Those of stored prompts are known to the server. */
export function writtenVariables({ messages, draft }: Pick<Setup, 'messages' | 'draft'>): string[] {
  return [...new Set([...(draft === null ? [] : variablesOf(draft)), ...messages.flatMap((message) => variablesOf(message.content))])]
}

type Input = Pick<Schemas['PlaygroundRunRequest'], 'messages' | 'prompt'>

/** What a column sends. Columns with the same input are run together. */
export function requestInput(setup: Setup, column: Pick<ColumnSetup, 'prompt'> = {}): Input {
  const messages = setup.messages.filter((message) => !isEmpty(message)).map((message) => wireMessage(message, setup.values))
  const prompt = column.prompt ?? setup.prompt
  if (!prompt) return { messages }
  if (!column.prompt && setup.draft !== null) {
    // As the server does with a stored prompt: before the messages, or as the only one.
    const content = fill(setup.draft, setup.values)
    return { messages: messages.length > 0 ? [{ role: 'system', content }, ...messages] : [{ role: 'user', content }] }
  }
  const { namespace, slug, version } = prompt
  return { prompt: { namespace, slug, version, variables: setup.values }, ...(messages.length > 0 && { messages }) }
}

function wireMessage({ role, content, images, toolCalls, toolCallId }: Message, values: Readonly<Record<string, string>>): Record<string, unknown> {
  const text = fill(content, values)
  const calls = role === 'assistant' && toolCalls?.length ? toolCalls : undefined
  const parts = role === 'user' && images?.length ? [...(text === '' ? [] : [{ type: 'text', text }]), ...images.map((url) => ({ type: 'image_url', image_url: { url } }))] : calls && text === '' ? null : text
  return { role, content: parts, ...(calls && { tool_calls: calls }), ...(role === 'tool' && { tool_call_id: toolCallId ?? '' }) }
}

/** Only variables with a value are replaced: braces in a message may be meant as they are. */
function fill(text: string, values: Readonly<Record<string, string>>): string {
  const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ''))
  return variablesOf(text).some((name) => name in given) ? renderPreview(text, given) : text
}

export function compareTarget(setup: Setup, column: ColumnSetup): Schemas['CompareTarget'] {
  const params = { ...parseParams(setup.params).value, ...(column.params && parseParams(column.params).value) }
  return { provider: column.provider, model: column.model.trim(), params }
}

/** What was tried, as targets of an eval: each column with its model, prompt, parameters and the values of variables. */
export function evalTargets(setup: Setup): RunTarget[] {
  return setup.columns.map((column) => {
    const { provider, model, params } = compareTarget(setup, column)
    // The input of a case is a variable of its own.
    const values = Object.entries(setup.values).filter(([name, value]) => value !== '' && name !== 'input')
    return { provider, model, prompt: column.prompt ?? setup.prompt, params: params ?? {}, variables: Object.fromEntries(values) }
  })
}

/** Why the columns cannot be evaluated as they were tried, or null. */
export function evaluationProblem(setup: Setup): string | null {
  if (setup.columns.some((column) => column.model.trim() === '')) return 'Choose a model for every column'
  if (setup.draft !== null && setup.columns.some((column) => !column.prompt)) return 'Save or discard the changed text of the prompt first'
  return paramProblem(setup)
}

/** What an evaluation leaves out, because the inputs of the dataset take the place of the messages. */
export function notEvaluated({ messages }: Pick<Setup, 'messages'>): string | null {
  return messages.some((message) => message.role === 'system' && message.content.trim() !== '') ? 'The system message of the playground is not sent with the inputs of a dataset. Save it as a prompt to evaluate it.' : null
}

export function addColumn(columns: readonly ColumnSetup[]): ColumnSetup[] {
  const last = columns.at(-1)
  const id = Math.max(0, ...columns.map((column) => column.id)) + 1
  return [...columns, { ...(last ?? { provider: 'sandbox', model: 'sandbox-small', params: null }), id }]
}
