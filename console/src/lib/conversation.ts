/**
 * Parses requests, responses and event streams of OpenAI (Chat Completions and Responses), Anthropic and Gemini into
 * messages of parts. The format is detected from the fields of the body. Unknown content is kept and shown as JSON.
 */
import { isRecord } from '../api/error'
import { type Part, parseParts, reasoningParts, text } from './conversation/blocks'
import { aggregateStream } from './conversation/aggregate'

export type { Part } from './conversation/blocks'
export type Role = 'system' | 'user' | 'assistant' | 'tool'

export interface Message {
  role: Role
  parts: Part[]
}

export interface ModelResponse {
  messages: Message[]
  finishReason: string | null
  /** Error message of the provider. */
  error: string | null
}

type Body = Record<string, unknown>

/** Parses the messages of a request; null if there are none (embeddings, images, or a body that was not stored). */
export function parseRequest(body: unknown): Message[] | null {
  if (!isRecord(body)) return null
  const messages = [...systemMessages(body), ...conversationMessages(body)]
  return messages.length > 0 ? messages : null
}

/** Parses a response body. The text of an event stream is aggregated into one response first. */
export function parseResponse(body: unknown): ModelResponse | null {
  const json = typeof body === 'string' ? aggregateStream(body) : body
  if (!isRecord(json)) return null
  const messages = responseMessages(json).filter((message) => message.parts.length > 0)
  const response = { messages, finishReason: findFinishReason(json), error: findError(json) }
  return messages.length > 0 || response.error !== null || response.finishReason !== null ? response : null
}

/** The text parts of a message, for previews and comparisons. */
export function plainText(message: Message): string {
  return message.parts.flatMap((part) => (part.kind === 'text' ? [part.text] : [])).join('\n')
}

function systemMessages(body: Body): Message[] {
  const system = body['system'] ?? body['instructions'] ?? body['systemInstruction'] ?? body['system_instruction']
  const parts = parseParts(isRecord(system) ? system['parts'] : system)
  return parts.length > 0 ? [{ role: 'system', parts }] : []
}

function conversationMessages(body: Body): Message[] {
  if (Array.isArray(body['messages'])) return body['messages'].filter(isRecord).map(parseMessage)
  if (Array.isArray(body['contents'])) return body['contents'].filter(isRecord).map(parseGeminiContent)
  if (isRecord(body['contents'])) return [parseGeminiContent(body['contents'])]
  if ('input' in body && !('encoding_format' in body)) return parseResponsesItems(body['input'])
  return typeof body['prompt'] === 'string' ? [{ role: 'user', parts: [text(body['prompt'])] }] : []
}

/** Parses a message of chat completions, Anthropic, Bedrock or Cohere. */
function parseMessage(message: Body): Message {
  const role = parseRole(message['role'])
  const parts = [...reasoningParts(message), ...parseParts(message['content']), ...refusalParts(message), ...toolCallParts(message)]
  if (role === 'tool') {
    const id = typeof message['tool_call_id'] === 'string' ? message['tool_call_id'] : null
    // Messages of the role `function` have the name of what they answer instead of an id.
    const name = typeof message['name'] === 'string' ? message['name'] : null
    return { role, parts: [{ kind: 'tool_result', id, name, content: parts, failed: false }] }
  }
  // A user message with nothing but tool results is a tool message.
  const isToolResult = role === 'user' && parts.length > 0 && parts.every((part) => part.kind === 'tool_result')
  return { role: isToolResult ? 'tool' : role, parts }
}

function parseGeminiContent(turn: Body): Message {
  const parts = parseParts(turn['parts'])
  const isToolResult = parts.length > 0 && parts.every((part) => part.kind === 'tool_result')
  return { role: isToolResult ? 'tool' : turn['role'] === 'model' ? 'assistant' : parseRole(turn['role']), parts }
}

/** Parses input or output items of the Responses API: messages, tool calls, tool results and reasoning. */
function parseResponsesItems(input: unknown): Message[] {
  if (typeof input === 'string') return [{ role: 'user', parts: [text(input)] }]
  if (!Array.isArray(input)) return []
  const messages: Message[] = []
  for (const item of input.filter(isRecord)) {
    const next = parseResponsesItem(item)
    const last = messages.at(-1)
    if (last?.role === next.role && next.role === 'assistant') last.parts.push(...next.parts)
    else messages.push(next)
  }
  return messages
}

function parseResponsesItem(item: Body): Message {
  if (item['type'] === undefined || item['type'] === 'message') return parseMessage(item)
  const parts = parseParts([item])
  return { role: parts.some((part) => part.kind === 'tool_result') ? 'tool' : 'assistant', parts }
}

function responseMessages(body: Body): Message[] {
  if (Array.isArray(body['choices'])) {
    return body['choices'].filter(isRecord).map((choice) => {
      if (typeof choice['text'] === 'string') return { role: 'assistant', parts: [text(choice['text'])] }
      return parseMessage(isRecord(choice['message']) ? choice['message'] : {})
    })
  }
  if (Array.isArray(body['candidates'])) {
    return body['candidates'].filter(isRecord).map((one) => parseGeminiContent({ role: 'model', ...asRecord(one['content']) }))
  }
  if (Array.isArray(body['output'])) return parseResponsesItems(body['output'])
  if (isRecord(body['output'])) return [parseMessage(asRecord(body['output']['message']))]
  if (isRecord(body['message'])) return [parseMessage({ role: 'assistant', ...body['message'] })]
  if (Array.isArray(body['content'])) return [parseMessage(body)]
  return []
}

function findFinishReason(body: Body): string | null {
  const first = [body['choices'], body['candidates']].find(Array.isArray)?.find(isRecord)
  const incomplete = isRecord(body['incomplete_details']) ? body['incomplete_details']['reason'] : undefined
  const reasons = [first?.['finish_reason'], first?.['finishReason'], body['stop_reason'], body['stopReason'], body['finish_reason']]
  const blocked = isRecord(body['promptFeedback']) ? body['promptFeedback']['blockReason'] : undefined
  const status = Array.isArray(body['output']) ? body['status'] : undefined
  const reason = [...reasons, incomplete, blocked, status].find((value) => typeof value === 'string')
  return typeof reason === 'string' ? reason : null
}

function findError(body: Body): string | null {
  const error = body['error'] ?? (body['type'] === 'error' ? body : null)
  if (typeof error === 'string') return error
  if (!isRecord(error)) return null
  return typeof error['message'] === 'string' ? error['message'] : JSON.stringify(error)
}

function refusalParts(message: Body): Part[] {
  return typeof message['refusal'] === 'string' ? [{ kind: 'refusal', text: message['refusal'] }] : []
}

/** The calls of a message. `function_call` is the older form of OpenAI, with one call and without an id. */
function toolCallParts(message: Body): Part[] {
  const calls: unknown[] = Array.isArray(message['tool_calls']) ? message['tool_calls'] : []
  const legacy = isRecord(message['function_call']) ? [{ function: message['function_call'] }] : []
  return parseParts([...calls.filter(isRecord), ...legacy].map((call) => ({ ...call, type: 'function' })))
}

function parseRole(role: unknown): Role {
  switch (role) {
    case 'system':
    case 'developer':
      return 'system'
    case 'assistant':
    case 'model':
      return 'assistant'
    case 'tool':
    case 'function':
      return 'tool'
    default:
      return 'user'
  }
}

function asRecord(value: unknown): Body {
  return isRecord(value) ? value : {}
}
