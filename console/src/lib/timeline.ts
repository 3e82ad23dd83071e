/**
 * Time axis with compressed idle gaps, so that a long gap does not squeeze the activity. Long gaps get a fixed width;
 * everything else is proportional.
 */
export interface TimeSegment {
  from: number
  to: number
  /** Position on the axis, between 0 and 1. */
  left: number
  right: number
  /** True for an idle gap with compressed width. */
  isGap: boolean
}

interface Span {
  start: number
  end: number
}

/** Gaps longer than this fraction of the total active time are compressed. */
const GAP_THRESHOLD = 0.25
/** Width of a compressed gap, and the maximum total width of all gaps, as fractions of the axis. */
const GAP_WIDTH = 0.04
const MAX_TOTAL_GAP_WIDTH = 0.4

export function compressGaps(spans: readonly Span[]): TimeSegment[] {
  const blocks = mergeOverlapping(spans)
  const first = blocks[0]
  if (!first) return []
  const active = blocks.reduce((sum, block) => sum + (block.end - block.start), 0)
  const pieces: { from: number; to: number; isGap: boolean }[] = []
  let current = { from: first.start, to: first.end, isGap: false }
  for (const block of blocks.slice(1)) {
    if (block.start - current.to > Math.max(1, active * GAP_THRESHOLD)) {
      pieces.push(current, { from: current.to, to: block.start, isGap: true })
      current = { from: block.start, to: block.end, isGap: false }
    } else {
      current = { ...current, to: block.end }
    }
  }
  pieces.push(current)
  const gaps = pieces.filter((piece) => piece.isGap).length
  const gapWidth = gaps === 0 ? 0 : Math.min(GAP_WIDTH, MAX_TOTAL_GAP_WIDTH / gaps)
  const length = pieces.filter((piece) => !piece.isGap).reduce((sum, piece) => sum + Math.max(1, piece.to - piece.from), 0)
  let left = 0
  return pieces.map((piece) => {
    const width = piece.isGap ? gapWidth : (Math.max(1, piece.to - piece.from) / length) * (1 - gaps * gapWidth)
    const segment = { ...piece, left, right: left + width }
    left += width
    return segment
  })
}

/** Maps an instant to its position on the axis. */
export function positionOf(at: number, segments: readonly TimeSegment[]): number {
  const found = segments.find((segment) => at <= segment.to) ?? segments.at(-1)
  if (!found) return 0
  const share = (at - found.from) / Math.max(1, found.to - found.from)
  return found.left + Math.min(1, Math.max(0, share)) * (found.right - found.left)
}

/** Maps a position on the axis to its instant. */
export function instantAt(position: number, segments: readonly TimeSegment[]): number {
  const found = segments.find((segment) => position <= segment.right) ?? segments.at(-1)
  if (!found) return 0
  const width = found.right - found.left
  return found.from + (width === 0 ? 0 : (position - found.left) / width) * (found.to - found.from)
}

function mergeOverlapping(spans: readonly Span[]): Span[] {
  const blocks: Span[] = []
  for (const span of spans.toSorted((a, b) => a.start - b.start)) {
    const last = blocks.at(-1)
    if (last && span.start <= last.end) last.end = Math.max(last.end, span.end)
    else blocks.push({ ...span })
  }
  return blocks
}
