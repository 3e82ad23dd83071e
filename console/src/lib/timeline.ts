/**
 * Time as a line on which silence is short: an hour without a request must not press everything else flat. Long gaps get
 * a fixed width, everything else keeps its proportions.
 */
export interface Stretch {
  from: number
  to: number
  /** Its place on the line, between 0 and 1. */
  left: number
  right: number
  /** Shortened silence. */
  gap: boolean
}

interface Span {
  start: number
  end: number
}

/** A gap longer than this share of all activity is shortened. */
const LONG = 0.25
/** How wide a shortened gap is, and how much of the line all of them may take. */
const GAP_WIDTH = 0.04
const ALL_GAPS = 0.4

export function compress(spans: readonly Span[]): Stretch[] {
  const blocks = activity(spans)
  const first = blocks[0]
  if (!first) return []
  const active = blocks.reduce((sum, block) => sum + (block.end - block.start), 0)
  const pieces: { from: number; to: number; gap: boolean }[] = []
  let open = { from: first.start, to: first.end, gap: false }
  for (const block of blocks.slice(1)) {
    if (block.start - open.to > Math.max(1, active * LONG)) {
      pieces.push(open, { from: open.to, to: block.start, gap: true })
      open = { from: block.start, to: block.end, gap: false }
    } else {
      open = { ...open, to: block.end }
    }
  }
  pieces.push(open)
  const gaps = pieces.filter((piece) => piece.gap).length
  const gapWidth = gaps === 0 ? 0 : Math.min(GAP_WIDTH, ALL_GAPS / gaps)
  const length = pieces.filter((piece) => !piece.gap).reduce((sum, piece) => sum + Math.max(1, piece.to - piece.from), 0)
  let left = 0
  return pieces.map((piece) => {
    const width = piece.gap ? gapWidth : (Math.max(1, piece.to - piece.from) / length) * (1 - gaps * gapWidth)
    const stretch = { ...piece, left, right: left + width }
    left += width
    return stretch
  })
}

/** Where on the line an instant lies. */
export function placeOf(at: number, stretches: readonly Stretch[]): number {
  const found = stretches.find((stretch) => at <= stretch.to) ?? stretches.at(-1)
  if (!found) return 0
  const share = (at - found.from) / Math.max(1, found.to - found.from)
  return found.left + Math.min(1, Math.max(0, share)) * (found.right - found.left)
}

/** The instant at a place on the line. */
export function instantAt(place: number, stretches: readonly Stretch[]): number {
  const found = stretches.find((stretch) => place <= stretch.right) ?? stretches.at(-1)
  if (!found) return 0
  const width = found.right - found.left
  return found.from + (width === 0 ? 0 : (place - found.left) / width) * (found.to - found.from)
}

/** Spans that touch are one. */
function activity(spans: readonly Span[]): Span[] {
  const blocks: Span[] = []
  for (const span of spans.toSorted((a, b) => a.start - b.start)) {
    const last = blocks.at(-1)
    if (last && span.start <= last.end) last.end = Math.max(last.end, span.end)
    else blocks.push({ ...span })
  }
  return blocks
}
