/** Playground setup: input, parameters and target models. */
import type { Schemas } from '@/api/client'
import { isRecord } from '@/api/error'
import { plainText, parseRequest } from '@/lib/conversation'

export const ROLES = ['system', 'user', 'assistant'] as const
export type Role = (typeof ROLES)[number]

export interface Message {
  role: Role
  content: string
}

/** Raw input text; empty parameters are omitted. */
export interface Params {
  temperature: string
  max_tokens: string
  top_p: string
  /** Other parameters as a JSON object. */
  more: string
}

export interface ColumnSetup {
  id: number
  provider: string
  model: string
  /** Overrides of the shared parameters, or null. */
  params: Params | null
}

export interface PromptChoice {
  namespace: string
  slug: string
  /** Null for the latest version. */
  version: number | null
  values: Record<string, string>
}

export interface Setup {
  messages: Message[]
  prompt: PromptChoice | null
  params: Params
  columns: ColumnSetup[]
}

export const NO_PARAMS: Params = { temperature: '', max_tokens: '', top_p: '', more: '' }
export const MAX_COLUMNS = 10
export const DEFAULT_SETUP: Setup = {
  messages: [{ role: 'user', content: '' }],
  prompt: null,
  params: NO_PARAMS,
  columns: [{ id: 1, provider: 'sandbox', model: 'sandbox-small', params: null }],
}

const NUMERIC_PARAMS = ['temperature', 'max_tokens', 'top_p'] as const

/** Parses the parameters, or returns the validation error. */
export function parseParams(params: Params): { value: Record<string, unknown>; problem: null } | { value: null; problem: string } {
  const value: Record<string, unknown> = {}
  for (const name of NUMERIC_PARAMS) {
    if (params[name].trim() === '') continue
    const number = Number(params[name])
    if (!Number.isFinite(number)) return { value: null, problem: `${name} is no number` }
    value[name] = number
  }
  if (params.more.trim() === '') return { value, problem: null }
  try {
    const more: unknown = JSON.parse(params.more)
    if (isRecord(more)) return { value: { ...value, ...more }, problem: null }
  } catch {
    // Reported below.
  }
  return { value: null, problem: 'The other settings are no JSON object' }
}

export function formatParams(params: unknown): Params {
  if (!isRecord(params)) return NO_PARAMS
  const { temperature, max_tokens, top_p, ...more } = params
  const text = (value: unknown) => (typeof value === 'number' ? String(value) : '')
  return { temperature: text(temperature), max_tokens: text(max_tokens), top_p: text(top_p), more: Object.keys(more).length > 0 ? JSON.stringify(more) : '' }
}

/** Returns the validation error of a setup, or null. */
export function validateSetup(setup: Setup): string | null {
  if (!setup.prompt && setup.messages.every((message) => message.content.trim() === '')) return 'Write a message first'
  if (setup.columns.some((column) => column.provider === '' || column.model.trim() === '')) return 'Choose a model for every column'
  return [setup.params, ...setup.columns.flatMap((column) => column.params ?? [])].map((params) => parseParams(params).problem).find((problem) => problem !== null) ?? null
}

/** The part of the request that is the same for every model. */
export function requestInput(setup: Setup): Pick<Schemas['PlaygroundRunRequest'], 'messages' | 'prompt'> {
  if (!setup.prompt) return { messages: setup.messages.filter((message) => message.content !== '').map(({ role, content }) => ({ role, content })) }
  const { namespace, slug, version, values } = setup.prompt
  return { prompt: { namespace, slug, version, variables: values } }
}

export function compareTarget(setup: Setup, column: ColumnSetup): Schemas['CompareTarget'] {
  const params = { ...parseParams(setup.params).value, ...(column.params && parseParams(column.params).value) }
  return { provider: column.provider, model: column.model.trim(), params }
}

export function addColumn(columns: readonly ColumnSetup[]): ColumnSetup[] {
  const last = columns.at(-1)
  const id = Math.max(0, ...columns.map((column) => column.id)) + 1
  return [...columns, { ...(last ?? { provider: 'sandbox', model: 'sandbox-small', params: null }), id }]
}

/** Parses a logged request body into playground messages; null if it has no conversation. */
export function parseMessages(body: unknown): Message[] | null {
  const messages = parseRequest(body)?.map((message) => ({ role: message.role === 'tool' ? ('user' as const) : message.role, content: plainText(message) })).filter((message) => message.content !== '')
  return messages && messages.length > 0 ? messages : null
}

/** Number of parts of a logged request that are no text, which the playground cannot edit. */
export function lostParts(body: unknown): number {
  return (parseRequest(body) ?? []).flatMap((message) => message.parts).filter((part) => part.kind !== 'text').length
}
