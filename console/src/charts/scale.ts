/** Axis scales and paths for charts. */

/** About `count` round tick values from 0 to at least `max`; only whole numbers for counts. */
export function niceTicks(max: number, count = 4, whole = false): number[] {
  if (!(max > 0)) return [0, 1]
  const rough = whole ? Math.max(1, max / count) : max / count
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size * count >= max * 0.999 && (!whole || Number.isInteger(size))) ?? power * 10
  const steps = Math.ceil(max / step - 1e-9)
  return Array.from({ length: steps + 1 }, (_, at) => Number((at * step).toPrecision(12)))
}

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
const STEPS = [1, 5, 15, 30, 60, 180, 360, 720, 1_440, 2_880, 10_080, 20_160, 43_200].map((minutes) => minutes * MINUTE)

/** Indices of the buckets with a label: round times, about `maxTicks`. `offset` is the UTC offset in milliseconds. */
export function timeTicks(starts: readonly number[], maxTicks: number, offset = 0): number[] {
  const [first, last] = [starts[0], starts.at(-1)]
  if (first === undefined || last === undefined || maxTicks < 1) return []
  const step = STEPS.find((size) => (last - first) / size <= maxTicks) ?? Math.ceil((last - first) / maxTicks / DAY) * DAY
  const aligned = starts.flatMap((at, index) => ((at + offset) % step === 0 ? [index] : []))
  // Weekly buckets may not align with round times; then label every n-th bucket.
  if (aligned.length > 0) return aligned
  const every = Math.max(1, Math.ceil(starts.length / maxTicks))
  return starts.flatMap((_, index) => (index % every === 0 ? [index] : []))
}

/** Time format of the axis labels. */
export function tickTimeStyle(starts: readonly number[]): 'minute' | 'day' {
  const [first, last] = [starts[0] ?? 0, starts.at(-1) ?? 0]
  return last - first > 2 * DAY ? 'day' : 'minute'
}

/** SVG path through the points, interrupted at missing values. */
export function linePath(values: readonly (number | null)[], x: (index: number) => number, y: (value: number) => number): string {
  let path = ''
  let penDown = false
  values.forEach((value, index) => {
    if (value === null) {
      penDown = false
      return
    }
    path += `${penDown ? 'L' : 'M'}${x(index).toFixed(1)} ${y(value).toFixed(1)}`
    // A single point has zero length and would be invisible.
    if (!penDown && (values[index + 1] ?? null) === null) path += 'h0.01'
    penDown = true
  })
  return path
}

/** Vertex of a regular polygon; the first one is at the top. */
export function polygonVertex(index: number, count: number, radius: number): { x: number; y: number } {
  const angle = (index / count) * 2 * Math.PI - Math.PI / 2
  return { x: Math.cos(angle) * radius, y: Math.sin(angle) * radius }
}
