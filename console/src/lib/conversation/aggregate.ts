/** Aggregates an event stream into the body that a non-streaming call would have returned. */
import { isRecord } from '../../api/error'
import { createEventParser } from '../sse'

type Body = Record<string, unknown>

/** Returns the aggregated body; null for an unknown format. A truncated stream yields the content received so far. */
export function aggregateStream(stream: string): Body | null {
  const events = createEventParser()(`${stream}\n\n`).map(({ data }) => parseObject(data)).filter((event) => event !== null)
  const error = events.find((event) => event['error'] != null || event['type'] === 'error')
  const first = events[0]
  if (!first) return null
  const aggregated = aggregateByFormat(first, events)
  if (!aggregated) return error ?? null
  return error && aggregated['error'] == null ? { ...aggregated, error: error['error'] ?? error } : aggregated
}

function aggregateByFormat(first: Body, events: Body[]): Body | null {
  if (events.some((event) => Array.isArray(event['choices']))) return aggregateChatCompletions(events)
  if (events.some((event) => Array.isArray(event['candidates']) || isRecord(event['promptFeedback']))) return aggregateGemini(events)
  if (typeof first['type'] === 'string' && first['type'].startsWith('response.')) return aggregateResponses(events)
  return events.some((event) => event['type'] === 'message_start') ? aggregateAnthropic(events) : null
}

function aggregateChatCompletions(events: Body[]): Body {
  const choices = new Map<number, { message: Body; finish_reason: unknown }>()
  for (const choice of events.flatMap((event) => asRecords(event['choices']))) {
    const index = asNumber(choice['index'])
    const aggregated = choices.get(index) ?? { message: { role: 'assistant' }, finish_reason: null }
    choices.set(index, aggregated)
    const delta = isRecord(choice['delta']) ? choice['delta'] : {}
    for (const name of ['content', 'refusal', 'reasoning_content', 'reasoning']) append(aggregated.message, name, delta[name])
    for (const call of asRecords(delta['tool_calls'])) appendToolCall(aggregated.message, call)
    if (isRecord(delta['function_call'])) appendFunctionCall(aggregated.message, delta['function_call'])
    aggregated.finish_reason = choice['finish_reason'] ?? aggregated.finish_reason
  }
  return { choices: [...choices.entries()].sort(([a], [b]) => a - b).map(([, choice]) => choice) }
}

function appendToolCall(message: Body, piece: Body): void {
  const calls = Array.isArray(message['tool_calls']) ? (message['tool_calls'] as Body[]) : []
  message['tool_calls'] = calls
  const given = isRecord(piece['function']) ? piece['function'] : {}
  const call = (calls[asNumber(piece['index'])] ??= { type: 'function', function: {} })
  if (typeof piece['id'] === 'string') call['id'] = piece['id']
  const definition = call['function'] as Body
  append(definition, 'name', given['name'])
  append(definition, 'arguments', given['arguments'])
}

/** The older form of a tool call, of which a message has one. */
function appendFunctionCall(message: Body, piece: Body): void {
  const call = isRecord(message['function_call']) ? message['function_call'] : {}
  message['function_call'] = call
  append(call, 'name', piece['name'])
  append(call, 'arguments', piece['arguments'])
}

function aggregateAnthropic(events: Body[]): Body {
  let message: Body = { type: 'message', role: 'assistant' }
  const blocks: Body[] = []
  for (const event of events) {
    const index = asNumber(event['index'])
    const delta = isRecord(event['delta']) ? event['delta'] : {}
    if (event['type'] === 'message_start' && isRecord(event['message'])) message = { ...event['message'] }
    if (event['type'] === 'message_delta') message['stop_reason'] = delta['stop_reason'] ?? message['stop_reason']
    if (event['type'] === 'content_block_start' && isRecord(event['content_block'])) blocks[index] = { ...event['content_block'] }
    const block = blocks[index]
    if (event['type'] !== 'content_block_delta' || !block) continue
    append(block, 'text', delta['text'])
    append(block, 'thinking', delta['thinking'])
    append(block, 'json', delta['partial_json'])
  }
  for (const block of blocks) {
    if (typeof block?.['json'] !== 'string') continue
    // A truncated tool call keeps its partial arguments as text.
    block['input'] = block['json'] === '' ? block['input'] : (parseObject(block['json']) ?? block['json'])
    delete block['json']
  }
  return { ...message, content: blocks.filter(Boolean) }
}

/** The final event contains the whole response. Without it, aggregate the items and text deltas received so far. */
function aggregateResponses(events: Body[]): Body {
  const finalEvent = events.findLast((event) => /^response\.(completed|incomplete|failed)$/.test(String(event['type'])))
  if (finalEvent && isRecord(finalEvent['response'])) return finalEvent['response']
  const items: Body[] = []
  for (const event of events) {
    const index = asNumber(event['output_index'])
    if (/^response\.output_item\.(added|done)$/.test(String(event['type'])) && isRecord(event['item'])) {
      items[index] = { ...event['item'] }
    } else if (event['type'] === 'response.output_text.delta') {
      const item = (items[index] ??= { type: 'message', role: 'assistant' })
      const content = asRecords(item['content'])
      const block = content[0] ?? { type: 'output_text', text: '' }
      append(block, 'text', event['delta'])
      item['content'] = [block]
    } else if (event['type'] === 'response.function_call_arguments.delta' && items[index]) {
      append(items[index], 'arguments', event['delta'])
    }
  }
  return { output: items.filter(Boolean) }
}

function aggregateGemini(events: Body[]): Body {
  const candidates: Body[] = []
  let aggregated: Body = {}
  for (const event of events) {
    aggregated = { ...aggregated, ...event }
    for (const candidate of asRecords(event['candidates'])) {
      const index = asNumber(candidate['index'])
      const before = candidates[index] ?? {}
      const parts = [...candidateParts(before), ...candidateParts(candidate)]
      candidates[index] = { ...before, ...candidate, content: { role: 'model', parts: mergeTextParts(parts) } }
    }
  }
  return { ...aggregated, candidates: candidates.filter(Boolean) }
}

/** Merges consecutive text parts; reasoning and output stay separate. */
function mergeTextParts(parts: Body[]): Body[] {
  const result: Body[] = []
  for (const part of parts) {
    const last = result.at(-1)
    const isText = typeof part['text'] === 'string' && typeof last?.['text'] === 'string'
    if (last && isText && (last['thought'] === true) === (part['thought'] === true)) {
      result[result.length - 1] = { ...last, text: `${String(last['text'])}${String(part['text'])}` }
    } else result.push(part)
  }
  return result
}

function candidateParts(candidate: Body): Body[] {
  return isRecord(candidate['content']) ? asRecords(candidate['content']['parts']) : []
}

function append(target: Body, name: string, piece: unknown): void {
  if (typeof piece === 'string') target[name] = `${typeof target[name] === 'string' ? target[name] : ''}${piece}`
}

function parseObject(data: string): Body | null {
  try {
    const value: unknown = JSON.parse(data)
    return isRecord(value) ? value : null
  } catch {
    return null
  }
}

function asRecords(value: unknown): Body[] {
  return Array.isArray(value) ? value.filter(isRecord) : []
}

function asNumber(value: unknown): number {
  return typeof value === 'number' ? value : 0
}
