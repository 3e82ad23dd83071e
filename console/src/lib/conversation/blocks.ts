/** Content blocks of all provider formats, parsed into message parts. */
import { isRecord } from '../../api/error'

export type Part =
  | { kind: 'text'; text: string }
  | { kind: 'reasoning'; text: string }
  | { kind: 'refusal'; text: string }
  /** `url` may be a data URL, which can be rendered, or a remote URL, which must not be loaded. */
  | { kind: 'image'; url: string | null; mime: string | null }
  | { kind: 'audio'; url: string | null; transcript: string | null }
  | { kind: 'file'; name: string | null; mime: string | null }
  | { kind: 'tool_call'; id: string | null; name: string; arguments: unknown }
  | { kind: 'tool_result'; id: string | null; name: string | null; content: Part[]; failed: boolean }
  | { kind: 'other'; value: unknown }

type Block = Record<string, unknown>

export function text(value: string): Part {
  return { kind: 'text', text: value }
}

/** Parses content: a string, one block or a list of blocks. */
export function parseParts(content: unknown): Part[] {
  if (content == null || content === '') return []
  if (typeof content === 'string') return [text(content)]
  if (Array.isArray(content)) return content.flatMap((block: unknown) => parseParts(block))
  return isRecord(content) ? parseTypedBlock(content) : [{ kind: 'other', value: content }]
}

/** Reasoning fields beside the content, as in several OpenAI-compatible APIs. */
export function reasoningParts(message: Block): Part[] {
  const given = message['reasoning_content'] ?? message['reasoning']
  return typeof given === 'string' && given !== '' ? [{ kind: 'reasoning', text: given }] : []
}

function parseTypedBlock(block: Block): Part[] {
  switch (block['type']) {
    case 'text':
    case 'input_text':
    case 'output_text':
      return typeof block['text'] === 'string' && block['text'] !== '' ? [text(block['text'])] : []
    case 'refusal':
      return [{ kind: 'refusal', text: asString(block['refusal']) ?? '' }]
    case 'thinking':
      return reasoningPart(asString(block['thinking']))
    case 'redacted_thinking':
      return reasoningPart('(hidden by the provider)')
    case 'reasoning':
      return reasoningPart([...collectTexts(block['summary']), ...collectTexts(block['content'])].join('\n\n'))
    case 'image_url':
    case 'input_image':
      return [image(block['image_url'])]
    case 'image':
      return [sourceImage(block)]
    case 'input_audio':
      return [inputAudio(block)]
    case 'document':
    case 'file':
    case 'input_file':
      return [file(block)]
    case 'function':
    case 'custom':
      return [functionCall(block)]
    case 'function_call':
    case 'custom_tool_call':
      return [toolCall(block['call_id'], block['name'], block['arguments'] ?? block['input'])]
    case 'tool_use':
    case 'server_tool_use':
      return [toolCall(block['id'], block['name'], block['input'])]
    case 'tool_result':
      return [toolResult(block['tool_use_id'], null, block['content'], block['is_error'] === true)]
    case 'function_call_output':
    case 'custom_tool_call_output':
      return [toolResult(block['call_id'], null, block['output'], false)]
    default:
      return parseUntypedBlock(block)
  }
}

/** Gemini and Bedrock blocks have no `type`; the field that is present determines the kind. */
function parseUntypedBlock(block: Block): Part[] {
  const { functionCall: call, functionResponse: response, toolUse, toolResult: result, inlineData, fileData } = block
  if (isRecord(call)) return [toolCall(call['id'], call['name'], call['args'])]
  if (isRecord(response)) return [toolResult(response['id'], response['name'], response['response'], false)]
  if (isRecord(toolUse)) return [toolCall(toolUse['toolUseId'], toolUse['name'], toolUse['input'])]
  if (isRecord(result)) return [toolResult(result['toolUseId'], null, result['content'], result['status'] === 'error')]
  if (isRecord(inlineData)) return [media(asString(inlineData['mimeType']), asString(inlineData['data']))]
  if (isRecord(fileData)) return [{ kind: 'file', name: asString(fileData['fileUri']), mime: asString(fileData['mimeType']) }]
  if (isRecord(block['reasoningContent'])) return reasoningPart(collectTexts(block['reasoningContent']['reasoningText']).join('\n'))
  if (typeof block['text'] === 'string') {
    if (block['text'] === '') return []
    return [{ kind: block['thought'] === true ? 'reasoning' : 'text', text: block['text'] }]
  }
  // A signature without text has nothing to display.
  if (typeof block['thoughtSignature'] === 'string') return []
  return [{ kind: 'other', value: 'json' in block ? block['json'] : block }]
}

function functionCall(block: Block): Part {
  const definition = isRecord(block['function']) ? block['function'] : isRecord(block['custom']) ? block['custom'] : block
  return toolCall(block['id'], definition['name'], definition['arguments'] ?? definition['input'])
}

/** Arguments are JSON or a JSON string; an unparsable string is kept as it is. */
function toolCall(id: unknown, name: unknown, given: unknown): Part {
  let args = given
  if (typeof given === 'string') {
    try {
      args = JSON.parse(given === '' ? '{}' : given)
    } catch {
      args = given
    }
  }
  return { kind: 'tool_call', id: asString(id), name: asString(name) ?? 'tool', arguments: args ?? {} }
}

function toolResult(id: unknown, name: unknown, content: unknown, failed: boolean): Part {
  const parts = isRecord(content) && content['type'] === undefined ? [{ kind: 'other' as const, value: content }] : parseParts(content)
  return { kind: 'tool_result', id: asString(id), name: asString(name), content: parts, failed }
}

function image(given: unknown): Part {
  const url = isRecord(given) ? asString(given['url']) : asString(given)
  return { kind: 'image', url, mime: url === null ? null : (/^data:([^;,]+)/.exec(url)?.[1] ?? null) }
}

/** Anthropic image blocks have a `source` with data or a URL. */
function sourceImage(block: Block): Part {
  const source = isRecord(block['source']) ? block['source'] : {}
  const data = asString(source['data'])
  return data === null ? image(source['url']) : media(asString(source['media_type']), data)
}

function media(mime: string | null, data: string | null): Part {
  const url = data === null ? null : `data:${mime ?? 'application/octet-stream'};base64,${data}`
  if (mime?.startsWith('audio/')) return { kind: 'audio', url, transcript: null }
  if (mime?.startsWith('image/')) return { kind: 'image', url, mime }
  return { kind: 'file', name: null, mime }
}

function inputAudio(block: Block): Part {
  const audio = isRecord(block['input_audio']) ? block['input_audio'] : {}
  const data = asString(audio['data'])
  return { kind: 'audio', url: data === null ? null : `data:audio/${asString(audio['format']) ?? 'wav'};base64,${data}`, transcript: null }
}

function file(block: Block): Part {
  const inner = isRecord(block['file']) ? block['file'] : isRecord(block['source']) ? block['source'] : {}
  const name = [block['title'], block['filename'], inner['filename'], block['file_id'], inner['file_id'], inner['url']]
  return { kind: 'file', name: name.map(asString).find((found) => found !== null) ?? null, mime: asString(inner['media_type']) }
}

function reasoningPart(value: string | null): Part[] {
  return value ? [{ kind: 'reasoning', text: value }] : []
}

function collectTexts(list: unknown): string[] {
  const items: unknown[] = Array.isArray(list) ? list : list === undefined ? [] : [list]
  return items.flatMap((item) => (isRecord(item) && typeof item['text'] === 'string' ? [item['text']] : []))
}

function asString(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}
