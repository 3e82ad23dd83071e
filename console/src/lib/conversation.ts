/**
 * One way to read what was said, whatever the provider's format: requests, answers and event streams of OpenAI (chat
 * completions and responses), Anthropic and Gemini become messages of parts. Formats are told by their own fields, so a
 * body needs no label; what is not recognised is kept as it is and shown as JSON, never dropped.
 */
import { isRecord } from '../api/error'
import { type Part, partsOf, reasoningOf, text } from './conversation/blocks'
import { foldStream } from './conversation/fold'

export type { Part } from './conversation/blocks'
export type Role = 'system' | 'user' | 'assistant' | 'tool'

export interface Message {
  role: Role
  parts: Part[]
}

export interface Answer {
  messages: Message[]
  finish: string | null
  /** What the provider said when it failed. */
  error: string | null
}

type Body = Record<string, unknown>

/** The messages of a request; null when it holds none, as for embeddings, images or a body that was not kept. */
export function requestMessages(body: unknown): Message[] | null {
  if (!isRecord(body)) return null
  const messages = [...systemOf(body), ...turnsOf(body)]
  return messages.length > 0 ? messages : null
}

/** What was answered; the text of an event stream is folded into one answer first. */
export function readAnswer(body: unknown): Answer | null {
  const whole = typeof body === 'string' ? foldStream(body) : body
  if (!isRecord(whole)) return null
  const messages = answerMessages(whole).filter((message) => message.parts.length > 0)
  const answer = { messages, finish: finishOf(whole), error: errorOf(whole) }
  return messages.length > 0 || answer.error !== null || answer.finish !== null ? answer : null
}

/** All text of a message, for previews and for comparing answers. */
export function plainText(message: Message): string {
  return message.parts.flatMap((part) => (part.kind === 'text' ? [part.text] : [])).join('\n')
}

function systemOf(body: Body): Message[] {
  const given = body['system'] ?? body['instructions'] ?? body['systemInstruction'] ?? body['system_instruction']
  const parts = partsOf(isRecord(given) ? given['parts'] : given)
  return parts.length > 0 ? [{ role: 'system', parts }] : []
}

function turnsOf(body: Body): Message[] {
  if (Array.isArray(body['messages'])) return body['messages'].filter(isRecord).map(messageOf)
  if (Array.isArray(body['contents'])) return body['contents'].filter(isRecord).map(geminiTurn)
  if (isRecord(body['contents'])) return [geminiTurn(body['contents'])]
  if ('input' in body && !('encoding_format' in body)) return inputItems(body['input'])
  return typeof body['prompt'] === 'string' ? [{ role: 'user', parts: [text(body['prompt'])] }] : []
}

/** A message of chat completions, of Anthropic, Bedrock or Cohere. */
function messageOf(message: Body): Message {
  const role = roleOf(message['role'])
  const parts = [...reasoningOf(message), ...partsOf(message['content']), ...refusalOf(message), ...toolCallsOf(message)]
  if (role === 'tool') {
    const id = typeof message['tool_call_id'] === 'string' ? message['tool_call_id'] : null
    return { role, parts: [{ kind: 'tool_result', id, name: null, content: parts, failed: false }] }
  }
  // A user turn that only hands back results is the tool speaking.
  const onlyResults = role === 'user' && parts.length > 0 && parts.every((part) => part.kind === 'tool_result')
  return { role: onlyResults ? 'tool' : role, parts }
}

function geminiTurn(turn: Body): Message {
  const parts = partsOf(turn['parts'])
  const onlyResults = parts.length > 0 && parts.every((part) => part.kind === 'tool_result')
  return { role: onlyResults ? 'tool' : turn['role'] === 'model' ? 'assistant' : roleOf(turn['role']), parts }
}

/** What the responses API takes and gives: messages, calls, results and thoughts, one after the other. */
function inputItems(input: unknown): Message[] {
  if (typeof input === 'string') return [{ role: 'user', parts: [text(input)] }]
  if (!Array.isArray(input)) return []
  const messages: Message[] = []
  for (const item of input.filter(isRecord)) {
    const next = itemOf(item)
    const last = messages.at(-1)
    if (last?.role === next.role && next.role === 'assistant') last.parts.push(...next.parts)
    else messages.push(next)
  }
  return messages
}

function itemOf(item: Body): Message {
  if (item['type'] === undefined || item['type'] === 'message') return messageOf(item)
  const parts = partsOf([item])
  return { role: parts.some((part) => part.kind === 'tool_result') ? 'tool' : 'assistant', parts }
}

function answerMessages(body: Body): Message[] {
  if (Array.isArray(body['choices'])) {
    return body['choices'].filter(isRecord).map((choice) => {
      if (typeof choice['text'] === 'string') return { role: 'assistant', parts: [text(choice['text'])] }
      return messageOf(isRecord(choice['message']) ? choice['message'] : {})
    })
  }
  if (Array.isArray(body['candidates'])) {
    return body['candidates'].filter(isRecord).map((one) => geminiTurn({ role: 'model', ...record(one['content']) }))
  }
  if (Array.isArray(body['output'])) return inputItems(body['output'])
  if (isRecord(body['output'])) return [messageOf(record(body['output']['message']))]
  if (isRecord(body['message'])) return [messageOf({ role: 'assistant', ...body['message'] })]
  if (Array.isArray(body['content'])) return [messageOf(body)]
  return []
}

function finishOf(body: Body): string | null {
  const first = [body['choices'], body['candidates']].find(Array.isArray)?.find(isRecord)
  const incomplete = isRecord(body['incomplete_details']) ? body['incomplete_details']['reason'] : undefined
  const places = [first?.['finish_reason'], first?.['finishReason'], body['stop_reason'], body['stopReason'], body['finish_reason']]
  const blocked = isRecord(body['promptFeedback']) ? body['promptFeedback']['blockReason'] : undefined
  const status = Array.isArray(body['output']) ? body['status'] : undefined
  const found = [...places, incomplete, blocked, status].find((value) => typeof value === 'string')
  return typeof found === 'string' ? found : null
}

function errorOf(body: Body): string | null {
  const error = body['error'] ?? (body['type'] === 'error' ? body : null)
  if (typeof error === 'string') return error
  if (!isRecord(error)) return null
  return typeof error['message'] === 'string' ? error['message'] : JSON.stringify(error)
}

function refusalOf(message: Body): Part[] {
  return typeof message['refusal'] === 'string' ? [{ kind: 'refusal', text: message['refusal'] }] : []
}

function toolCallsOf(message: Body): Part[] {
  const calls = Array.isArray(message['tool_calls']) ? message['tool_calls'] : []
  return partsOf(calls.filter(isRecord).map((call) => ({ ...call, type: 'function' })))
}

function roleOf(role: unknown): Role {
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

function record(value: unknown): Body {
  return isRecord(value) ? value : {}
}
