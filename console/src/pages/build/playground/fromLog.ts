/** Logged requests of every provider format as playground messages, with tools, tool calls, tool results and images. */
import { isRecord } from '@/api/error'
import { parseRequest, plainText, type Message as Parsed, type Part } from '@/lib/conversation'
import type { Message, ToolCall } from './setup'

/** Parses a logged request body into playground messages; null if it has no conversation. */
export function parseMessages(body: unknown): Message[] | null {
  // Gemini has no ids of calls; results answer calls in their order.
  const counts = { calls: 0, results: 0 }
  const messages = parseRequest(body)?.flatMap((message) => toMessages(message, counts)) ?? []
  return messages.length > 0 ? messages : null
}

function toMessages(message: Parsed, counts: { calls: number; results: number }): Message[] {
  const results = message.parts.flatMap((part): Message[] => (part.kind === 'tool_result' ? [{ role: 'tool', content: part.content.map(resultText).join('\n'), toolCallId: part.id ?? `call_${++counts.results}` }] : []))
  const toolCalls = message.parts.flatMap((part): ToolCall[] => (part.kind === 'tool_call' ? [{ id: part.id ?? `call_${++counts.calls}`, type: 'function', function: { name: part.name, arguments: typeof part.arguments === 'string' ? part.arguments : JSON.stringify(part.arguments) } }] : []))
  const images = message.parts.flatMap((part) => (part.kind === 'image' && part.url !== null ? [part.url] : []))
  const content = plainText(message)
  const rest: Message = { role: message.role === 'tool' ? 'user' : message.role, content, ...(images.length > 0 && { images }), ...(toolCalls.length > 0 && { toolCalls }) }
  return content === '' && images.length === 0 && toolCalls.length === 0 ? results : [...results, rest]
}

function resultText(part: Part): string {
  if (part.kind === 'text') return part.text
  return part.kind === 'other' ? JSON.stringify(part.value) : ''
}

/** Number of parts of a logged request that the playground cannot send again. */
export function lostParts(body: unknown): number {
  const parts = (parseRequest(body) ?? []).flatMap((message) => message.parts)
  const nested = parts.flatMap((part) => (part.kind === 'tool_result' ? part.content : []))
  const isLost = (part: Part) => part.kind === 'audio' || part.kind === 'file' || (part.kind === 'image' && part.url === null)
  return parts.filter((part) => isLost(part) || part.kind === 'other').length + nested.filter((part) => isLost(part) || part.kind === 'image').length + toolsOf(body).lost
}

/** Tools of a request in the format of chat completions. Tools that the provider runs itself cannot be translated. */
export function toolsOf(body: unknown): { tools: unknown[]; lost: number } {
  const given = isRecord(body) && Array.isArray(body['tools']) ? body['tools'].filter(isRecord) : []
  const tools: unknown[] = []
  let lost = 0
  for (const tool of given) {
    const declared = tool['functionDeclarations'] ?? tool['function_declarations']
    if (isRecord(tool['function'])) tools.push(tool)
    else if (Array.isArray(declared)) tools.push(...declared.filter(isRecord).map((one) => asFunction(one, one['parameters'] ?? one['parametersJsonSchema'])))
    else if (isRecord(tool['toolSpec'])) tools.push(asFunction(tool['toolSpec'], tool['toolSpec']['inputSchema']))
    else if (typeof tool['name'] === 'string' && isRecord(tool['input_schema'])) tools.push(asFunction(tool, tool['input_schema']))
    else if (tool['type'] === 'function' && typeof tool['name'] === 'string') tools.push(asFunction(tool, tool['parameters']))
    else lost += 1
  }
  return { tools, lost }
}

function asFunction({ name, description }: Record<string, unknown>, parameters: unknown): unknown {
  return { type: 'function', function: { name, ...(description !== undefined && { description }), ...(parameters !== undefined && { parameters }) } }
}

/** The parameters of a logged request that the playground can edit, in the format of chat completions. */
export function paramsOf(body: unknown): Record<string, unknown> {
  if (!isRecord(body)) return {}
  const { temperature, max_tokens, top_p, tool_choice, response_format } = body
  const { tools } = toolsOf(body)
  const all = { temperature, max_tokens, top_p, ...(tools.length > 0 && { tools, tool_choice: toolChoice(tool_choice) }), response_format }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined))
}

/** Anthropic has objects where chat completions have words. */
function toolChoice(choice: unknown): unknown {
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
    default:
      return undefined
  }
}
