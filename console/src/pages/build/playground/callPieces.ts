/**
 * Tool calls of a streamed answer. Chunks of chat completions have pieces of calls: the index says which call a piece
 * belongs to, the name comes first, and the arguments grow. The end of the stream has the complete calls, so what is
 * put together here is only shown until then.
 */
import { isRecord } from '@/api/error'
import type { ToolCall } from './setup'

export interface PartialCall {
  index: number
  call: ToolCall
}

/** As many as the gateway keeps of one answer. */
const MAX_CALLS = 128

/** The calls with the pieces of one more chunk, in the order of their indexes. */
export function addPieces(calls: readonly PartialCall[], pieces: readonly unknown[]): readonly PartialCall[] {
  return pieces.filter(isRecord).reduce(addPiece, calls)
}

function addPiece(calls: readonly PartialCall[], piece: Record<string, unknown>): readonly PartialCall[] {
  // Some providers send whole calls, without an index.
  const index = typeof piece['index'] === 'number' ? piece['index'] : (calls.at(-1)?.index ?? -1) + 1
  const at = calls.findIndex((one) => one.index >= index)
  const before = at >= 0 && calls[at]?.index === index ? calls[at] : undefined
  if (!before && calls.length >= MAX_CALLS) return calls
  const next = { index, call: grown(before?.call, piece) }
  return calls.toSpliced(at < 0 ? calls.length : at, before ? 1 : 0, next)
}

function grown(call: ToolCall | undefined, piece: Record<string, unknown>): ToolCall {
  const added = isRecord(piece['function']) ? piece['function'] : {}
  return {
    // The id may come after the first piece, or again with an empty text.
    id: textOf(piece['id']) || (call?.id ?? ''),
    type: 'function',
    function: { name: (call?.function.name ?? '') + textOf(added['name']), arguments: (call?.function.arguments ?? '') + textOf(added['arguments']) },
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
