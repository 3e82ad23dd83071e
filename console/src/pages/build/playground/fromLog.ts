/** Logged requests of every provider format as playground messages, with tools, tool calls, tool results and images. */
import { isRecord } from '@/api/error'
import { parseRequest, parseResponse, plainText, type Message as Parsed, type Part } from '@/lib/conversation'
import type { Message, ToolCall } from './setup'

/** Parses a logged request body into playground messages; null if it has no conversation. */
export function parseMessages(body: unknown): Message[] | null {
  const parsed = parseRequest(body) ?? []
  const taken = parsed.flatMap((message) => message.parts).flatMap((part) => (part.kind === 'tool_call' && part.id !== null ? [part.id] : []))
  const ids: CallIds = { given: 0, taken, open: [] }
  const messages = parsed.flatMap((message) => toMessages(message, ids))
  return messages.length > 0 ? messages : null
}

/** Whether a request has the functions of OpenAI that came before tools. They become tools here. */
export function hasLegacyFunctions(body: unknown): boolean {
  if (!isRecord(body)) return false
  const messages = Array.isArray(body['messages']) ? body['messages'].filter(isRecord) : []
  return Array.isArray(body['functions']) || messages.some((message) => message['role'] === 'function' || isRecord(message['function_call']))
}

/** The answer to logged messages, in whatever format it was; null if it has neither text nor tool calls. */
export function parseAnswer(body: unknown, asked: readonly Message[]): Message | null {
  const taken = asked.flatMap((message) => message.toolCalls?.map((call) => call.id) ?? [])
  const messages = parseResponse(body)?.messages ?? []
  // Of several choices it is the first one.
  return messages.slice(0, 1).flatMap((message) => toMessages(message, { given: taken.length, taken, open: [] }))[0] ?? null
}

/** Ids for calls that have none, as those of Gemini and `function_call`. The same body always gets the same ids. */
interface CallIds {
  given: number
  taken: readonly string[]
  /** Calls of the last message that made some, without a result so far. */
  open: { id: string; name: string }[]
}

function newId(ids: CallIds): string {
  const id = `call_${++ids.given}`
  return ids.taken.includes(id) ? newId(ids) : id
}

/** The id of the call that a result without an id answers: the first one of its name, or else the first one. */
function answeredId(ids: CallIds, name: string | null): string {
  const call = ids.open.find((one) => one.name === name) ?? ids.open[0]
  ids.open = ids.open.filter((one) => one !== call)
  return call?.id ?? newId(ids)
}

function toMessages(message: Parsed, ids: CallIds): Message[] {
  const results = message.parts.flatMap((part): Message[] => (part.kind === 'tool_result' ? [{ role: 'tool', content: part.content.map(resultText).join('\n'), toolCallId: part.id ?? answeredId(ids, part.name) }] : []))
  const toolCalls = message.parts.flatMap((part): ToolCall[] => (part.kind === 'tool_call' ? [{ id: part.id ?? newId(ids), type: 'function', function: { name: part.name, arguments: typeof part.arguments === 'string' ? part.arguments : JSON.stringify(part.arguments) } }] : []))
  if (toolCalls.length > 0) ids.open = toolCalls.map((call) => ({ id: call.id, name: call.function.name }))
  const images = message.parts.flatMap((part) => (part.kind === 'image' && part.url !== null ? [part.url] : []))
  const content = plainText(message)
  const rest: Message = { role: message.role === 'tool' ? 'user' : message.role, content, ...(images.length > 0 && { images }), ...(toolCalls.length > 0 && { toolCalls }) }
  return content === '' && images.length === 0 && toolCalls.length === 0 ? results : [...results, rest]
}

function resultText(part: Part): string {
  if (part.kind === 'text') return part.text
  return part.kind === 'other' ? JSON.stringify(part.value) : ''
}

/** Number of parts and parameters of a logged request that the playground cannot send again. */
export function lostParts(body: unknown): number {
  const parts = (parseRequest(body) ?? []).flatMap((message) => message.parts)
  const nested = parts.flatMap((part) => (part.kind === 'tool_result' ? part.content : []))
  const isLost = (part: Part) => part.kind === 'audio' || part.kind === 'file' || (part.kind === 'image' && part.url === null)
  return parts.filter((part) => isLost(part) || part.kind === 'other').length + nested.filter((part) => isLost(part) || part.kind === 'image').length + toolsOf(body).lost + lostParams(body).length
}

/** Tools of a request in the format of chat completions. Tools that the provider runs itself cannot be translated. */
export function toolsOf(body: unknown): { tools: unknown[]; lost: number } {
  const config = isRecord(body) && isRecord(body['toolConfig']) ? body['toolConfig'] : {}
  const listed = isRecord(body) ? (body['tools'] ?? config['tools']) : undefined
  const given = Array.isArray(listed) ? listed.filter(isRecord) : []
  const tools: unknown[] = []
  let lost = 0
  for (const tool of given) {
    const declared = tool['functionDeclarations'] ?? tool['function_declarations']
    if (isRecord(tool['function'])) tools.push(tool)
    else if (Array.isArray(declared)) tools.push(...declared.filter(isRecord).map((one) => asFunction(one, one['parameters'] ?? one['parametersJsonSchema'])))
    else if (isRecord(tool['toolSpec'])) tools.push(asFunction(tool['toolSpec'], isRecord(tool['toolSpec']['inputSchema']) ? tool['toolSpec']['inputSchema']['json'] : undefined))
    else if (typeof tool['name'] === 'string' && isRecord(tool['input_schema'])) tools.push(asFunction(tool, tool['input_schema']))
    else if (tool['type'] === 'function' && typeof tool['name'] === 'string') tools.push(asFunction(tool, tool['parameters']))
    else lost += 1
  }
  const functions = isRecord(body) && Array.isArray(body['functions']) ? body['functions'].filter(isRecord) : []
  return { tools: [...tools, ...functions.map((one) => asFunction(one, one['parameters']))], lost }
}

function asFunction({ name, description, strict }: Record<string, unknown>, parameters: unknown): unknown {
  return { type: 'function', function: { name, ...(description !== undefined && { description }), ...(parameters !== undefined && { parameters }), ...(typeof strict === 'boolean' && { strict }) } }
}

/** The parameters of a logged request in the format of chat completions, which is that of the playground. */
export function paramsOf(body: unknown): Record<string, unknown> {
  return isRecord(body) ? translateParams(body).params : {}
}

/** Names of the parameters of a logged request that have no counterpart in chat completions. */
export function lostParams(body: unknown): string[] {
  return isRecord(body) ? translateParams(body).lost : []
}

/** A parameter's name in chat completions, or what it becomes there; undefined if it cannot be expressed. */
type Rule = string | ((value: unknown) => Record<string, unknown> | undefined)

/** What is read elsewhere, or is of no meaning to the playground. */
const READ_ELSEWHERE = ['model', 'messages', 'stream', 'stream_options', 'tools', 'tool_choice', 'functions', 'function_call', 'toolConfig', 'tool_config', 'system', 'instructions', 'systemInstruction', 'system_instruction', 'contents', 'input', 'prompt', 'anthropic_version', 'modelId']

const SAMPLING: Readonly<Record<string, Rule>> = { temperature: 'temperature', top_p: 'top_p', top_k: 'top_k', seed: 'seed', frequency_penalty: 'frequency_penalty', presence_penalty: 'presence_penalty' }
const ANTHROPIC: Readonly<Record<string, Rule>> = {
  ...SAMPLING,
  max_tokens: 'max_tokens',
  stop_sequences: 'stop',
  service_tier: 'service_tier',
  // Cohere's short names.
  p: 'top_p',
  k: 'top_k',
  thinking: (value) => (isRecord(value) && value['type'] === 'disabled' ? { reasoning_effort: 'none' } : undefined),
  output_config: outputConfig,
}
const RESPONSES: Readonly<Record<string, Rule>> = {
  ...SAMPLING,
  max_output_tokens: 'max_completion_tokens',
  parallel_tool_calls: 'parallel_tool_calls',
  user: 'user',
  metadata: 'metadata',
  service_tier: 'service_tier',
  store: 'store',
  prompt_cache_key: 'prompt_cache_key',
  reasoning: (value) => (isRecord(value) && typeof value['effort'] === 'string' && Object.keys(value).length === 1 ? { reasoning_effort: value['effort'] } : undefined),
  text: (value) => (isRecord(value) ? { ...(value['verbosity'] !== undefined && { verbosity: value['verbosity'] }), ...outputFormat(value['format']) } : undefined),
}
const GEMINI_CONFIG: Readonly<Record<string, Rule>> = {
  temperature: 'temperature',
  topP: 'top_p',
  topK: 'top_k',
  maxOutputTokens: 'max_tokens',
  stopSequences: 'stop',
  seed: 'seed',
  presencePenalty: 'presence_penalty',
  frequencyPenalty: 'frequency_penalty',
  responseJsonSchema: (schema) => answerSchema(schema),
  responseMimeType: (type) => (type === 'application/json' ? { response_format: { type: 'json_object' } } : type === 'text/plain' ? {} : undefined),
}
const BEDROCK_CONFIG: Readonly<Record<string, Rule>> = { temperature: 'temperature', topP: 'top_p', maxTokens: 'max_tokens', stopSequences: 'stop' }

function translateParams(body: Record<string, unknown>): { params: Record<string, unknown>; lost: string[] } {
  const { tools } = toolsOf(body)
  const result = translate(body)
  const { choice, parallel } = toolChoice(body)
  const all = { ...result.params, ...(tools.length > 0 && { tools, tool_choice: choice, ...(parallel !== undefined && { parallel_tool_calls: parallel }) }) }
  return { params: Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)), lost: result.lost }
}

function translate(body: Record<string, unknown>): { params: Record<string, unknown>; lost: string[] } {
  const rest = Object.fromEntries(Object.entries(body).filter(([name, value]) => value !== undefined && value !== null && !READ_ELSEWHERE.includes(name)))
  if ('contents' in body) {
    const { generationConfig, generation_config, ...others } = rest
    return join(applyRules(generationConfig ?? generation_config, GEMINI_CONFIG), applyRules(others, {}))
  }
  if ('input' in body) return applyRules(rest, RESPONSES)
  if ('inferenceConfig' in body || 'toolConfig' in body || 'modelId' in body) {
    const { inferenceConfig, ...others } = rest
    return join(applyRules(inferenceConfig, BEDROCK_CONFIG), applyRules(others, {}))
  }
  return isAnthropic(body) ? applyRules(rest, ANTHROPIC) : { params: rest, lost: [] }
}

function isAnthropic(body: Record<string, unknown>): boolean {
  const tools = Array.isArray(body['tools']) ? body['tools'].filter(isRecord) : []
  return ['system', 'stop_sequences', 'thinking', 'output_config', 'anthropic_version', 'mcp_servers', 'container', 'context_management'].some((name) => name in body) || tools.some((tool) => isRecord(tool['input_schema']))
}

function applyRules(given: unknown, rules: Readonly<Record<string, Rule>>): { params: Record<string, unknown>; lost: string[] } {
  const params: Record<string, unknown> = {}
  const lost: string[] = []
  for (const [name, value] of Object.entries(isRecord(given) ? given : {})) {
    if (value === null || value === undefined) continue
    const rule = rules[name]
    const translated = typeof rule === 'function' ? rule(value) : rule === undefined ? undefined : { [rule]: value }
    if (!translated) lost.push(name)
    // A schema says more than "JSON".
    else if (!('response_format' in translated && isRecord(params['response_format']) && 'json_schema' in params['response_format'])) Object.assign(params, translated)
  }
  return { params, lost }
}

function join(one: { params: Record<string, unknown>; lost: string[] }, other: { params: Record<string, unknown>; lost: string[] }) {
  return { params: { ...one.params, ...other.params }, lost: [...one.lost, ...other.lost] }
}

function answerSchema(schema: unknown): Record<string, unknown> {
  return { response_format: { type: 'json_schema', json_schema: { name: 'answer', schema } } }
}

/** Anthropic's effort and schema of the answer. */
function outputConfig(value: unknown): Record<string, unknown> | undefined {
  const { effort, format, ...others } = isRecord(value) ? value : { other: value }
  const schema = isRecord(format) && format['type'] === 'json_schema' && isRecord(format['schema']) ? format['schema'] : undefined
  if (Object.keys(others).length > 0 || (format !== undefined && !schema) || (effort !== undefined && typeof effort !== 'string')) return undefined
  return { ...(effort !== undefined && { reasoning_effort: effort }), ...(schema && answerSchema(schema)) }
}

/** The format of an answer of the Responses API. */
function outputFormat(format: unknown): Record<string, unknown> {
  if (!isRecord(format) || format['type'] === 'text') return {}
  const { type, ...schema } = format
  return { response_format: type === 'json_schema' ? { type, json_schema: schema } : format }
}

function toolChoice(body: Record<string, unknown>): { choice: unknown; parallel: boolean | undefined } {
  const choice = body['tool_choice'] ?? body['function_call']
  const config = body['toolConfig'] ?? body['tool_config']
  const parallel = isRecord(choice) && choice['disable_parallel_tool_use'] === true ? false : undefined
  if (choice !== undefined || !isRecord(config)) return { choice: asChoice(choice), parallel }
  const gemini = config['functionCallingConfig'] ?? config['function_calling_config']
  if (isRecord(gemini)) return { choice: { AUTO: 'auto', ANY: 'required', NONE: 'none' }[String(gemini['mode'])], parallel }
  const bedrock = isRecord(config['toolChoice']) ? config['toolChoice'] : {}
  const named = isRecord(bedrock['tool']) ? { type: 'function', function: { name: bedrock['tool']['name'] } } : undefined
  return { choice: 'any' in bedrock ? 'required' : 'auto' in bedrock ? 'auto' : named, parallel }
}

/** Anthropic has objects where chat completions have words. */
function asChoice(choice: unknown): unknown {
  if (!isRecord(choice) || isRecord(choice['function'])) return choice
  switch (choice['type']) {
    case 'auto':
    case 'none':
      return choice['type']
    case 'any':
      return 'required'
    case 'tool':
    case 'function':
      return { type: 'function', function: { name: choice['name'] } }
    case undefined:
      // As the value of `function_call`, which has a name only.
      return typeof choice['name'] === 'string' ? { type: 'function', function: { name: choice['name'] } } : undefined
    default:
      return undefined
  }
}
