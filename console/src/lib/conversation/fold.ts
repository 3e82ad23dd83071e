/** An event stream made into the body that the same call would have had without streaming. */
import { isRecord } from '../../api/error'
import { createParser } from '../sse'

type Body = Record<string, unknown>

/** The folded body; null when the text is no event stream that we know. A stream that was cut off gives what came. */
export function foldStream(stream: string): Body | null {
  const events = createParser()(`${stream}\n\n`).map(({ data }) => read(data)).filter((event) => event !== null)
  const error = events.find((event) => event['error'] != null || event['type'] === 'error')
  const first = events[0]
  if (!first) return null
  const folded = foldBy(first, events)
  if (!folded) return error ?? null
  return error && folded['error'] == null ? { ...folded, error: error['error'] ?? error } : folded
}

function foldBy(first: Body, events: Body[]): Body | null {
  if (events.some((event) => Array.isArray(event['choices']))) return foldChat(events)
  if (events.some((event) => Array.isArray(event['candidates']) || isRecord(event['promptFeedback']))) return foldGemini(events)
  if (typeof first['type'] === 'string' && first['type'].startsWith('response.')) return foldResponses(events)
  return events.some((event) => event['type'] === 'message_start') ? foldAnthropic(events) : null
}

function foldChat(events: Body[]): Body {
  const choices = new Map<number, { message: Body; finish_reason: unknown }>()
  for (const choice of events.flatMap((event) => list(event['choices']))) {
    const index = number(choice['index'])
    const folded = choices.get(index) ?? { message: { role: 'assistant' }, finish_reason: null }
    choices.set(index, folded)
    const delta = isRecord(choice['delta']) ? choice['delta'] : {}
    for (const name of ['content', 'refusal', 'reasoning_content', 'reasoning']) append(folded.message, name, delta[name])
    for (const call of list(delta['tool_calls'])) appendCall(folded.message, call)
    folded.finish_reason = choice['finish_reason'] ?? folded.finish_reason
  }
  return { choices: [...choices.entries()].sort(([a], [b]) => a - b).map(([, choice]) => choice) }
}

function appendCall(message: Body, piece: Body): void {
  const calls = Array.isArray(message['tool_calls']) ? (message['tool_calls'] as Body[]) : []
  message['tool_calls'] = calls
  const given = isRecord(piece['function']) ? piece['function'] : {}
  const call = (calls[number(piece['index'])] ??= { type: 'function', function: {} })
  if (typeof piece['id'] === 'string') call['id'] = piece['id']
  const called = call['function'] as Body
  append(called, 'name', given['name'])
  append(called, 'arguments', given['arguments'])
}

function foldAnthropic(events: Body[]): Body {
  let message: Body = { type: 'message', role: 'assistant' }
  const blocks: Body[] = []
  for (const event of events) {
    const index = number(event['index'])
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
    // An unfinished call keeps the text of its arguments.
    block['input'] = block['json'] === '' ? block['input'] : (read(block['json']) ?? block['json'])
    delete block['json']
  }
  return { ...message, content: blocks.filter(Boolean) }
}

/** The last event carries everything; without it, the items that were finished and the text that had come. */
function foldResponses(events: Body[]): Body {
  const ended = events.findLast((event) => /^response\.(completed|incomplete|failed)$/.test(String(event['type'])))
  if (ended && isRecord(ended['response'])) return ended['response']
  const items: Body[] = []
  for (const event of events) {
    const index = number(event['output_index'])
    if (/^response\.output_item\.(added|done)$/.test(String(event['type'])) && isRecord(event['item'])) {
      items[index] = { ...event['item'] }
    } else if (event['type'] === 'response.output_text.delta') {
      const item = (items[index] ??= { type: 'message', role: 'assistant' })
      const content = list(item['content'])
      const block = content[0] ?? { type: 'output_text', text: '' }
      append(block, 'text', event['delta'])
      item['content'] = [block]
    } else if (event['type'] === 'response.function_call_arguments.delta' && items[index]) {
      append(items[index], 'arguments', event['delta'])
    }
  }
  return { output: items.filter(Boolean) }
}

function foldGemini(events: Body[]): Body {
  const candidates: Body[] = []
  let folded: Body = {}
  for (const event of events) {
    folded = { ...folded, ...event }
    for (const candidate of list(event['candidates'])) {
      const index = number(candidate['index'])
      const before = candidates[index] ?? {}
      const parts = [...partsIn(before), ...partsIn(candidate)]
      candidates[index] = { ...before, ...candidate, content: { role: 'model', parts: joined(parts) } }
    }
  }
  return { ...folded, candidates: candidates.filter(Boolean) }
}

/** Text that came in pieces is one text, thoughts apart from the answer. */
function joined(parts: Body[]): Body[] {
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

function partsIn(candidate: Body): Body[] {
  return isRecord(candidate['content']) ? list(candidate['content']['parts']) : []
}

function append(target: Body, name: string, piece: unknown): void {
  if (typeof piece === 'string') target[name] = `${typeof target[name] === 'string' ? target[name] : ''}${piece}`
}

function read(data: string): Body | null {
  try {
    const value: unknown = JSON.parse(data)
    return isRecord(value) ? value : null
  } catch {
    return null
  }
}

function list(value: unknown): Body[] {
  return Array.isArray(value) ? value.filter(isRecord) : []
}

function number(value: unknown): number {
  return typeof value === 'number' ? value : 0
}
