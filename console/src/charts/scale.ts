/** Where things go on an axis. */

/** Round steps from 0 to at least `max`, about `count` of them. */
export function niceTicks(max: number, count = 4): number[] {
  if (!(max > 0)) return [0, 1]
  const rough = max / count
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size * count >= max * 0.999) ?? power * 10
  const steps = Math.ceil(max / step - 1e-9)
  return Array.from({ length: steps + 1 }, (_, at) => Number((at * step).toPrecision(12)))
}

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
const STEPS = [1, 5, 15, 30, 60, 180, 360, 720, 1_440, 2_880, 10_080, 20_160, 43_200].map((minutes) => minutes * MINUTE)

/** Indices of the buckets that get a label: round times, at most `most` of them. `offset` is the zone's, in milliseconds. */
export function timeTicks(starts: readonly number[], most: number, offset = 0): number[] {
  const [first, last] = [starts[0], starts.at(-1)]
  if (first === undefined || last === undefined || most < 1) return []
  const step = STEPS.find((size) => (last - first) / size <= most) ?? Math.ceil((last - first) / most / DAY) * DAY
  const found = starts.flatMap((at, index) => ((at + offset) % step === 0 ? [index] : []))
  // Weeks and the like may meet no round time; then every so many buckets do.
  if (found.length > 0) return found
  const every = Math.max(1, Math.ceil(starts.length / most))
  return starts.flatMap((_, index) => (index % every === 0 ? [index] : []))
}

/** How labels of an axis with this distance between them are told. */
export function tickStyle(starts: readonly number[]): 'minute' | 'day' {
  const [first, last] = [starts[0] ?? 0, starts.at(-1) ?? 0]
  return last - first > 2 * DAY ? 'day' : 'minute'
}

/** A line through the points, broken where there is no value. */
export function linePath(values: readonly (number | null)[], x: (index: number) => number, y: (value: number) => number): string {
  let path = ''
  let isDown = false
  values.forEach((value, index) => {
    if (value === null) {
      isDown = false
      return
    }
    path += `${isDown ? 'L' : 'M'}${x(index).toFixed(1)} ${y(value).toFixed(1)}`
    // A lone point would have no length, and so no ink.
    if (!isDown && (values[index + 1] ?? null) === null) path += 'h0.01'
    isDown = true
  })
  return path
}

/** Where each corner of a regular shape lies, the first one on top. */
export function corner(index: number, count: number, radius: number): { x: number; y: number } {
  const angle = (index / count) * 2 * Math.PI - Math.PI / 2
  return { x: Math.cos(angle) * radius, y: Math.sin(angle) * radius }
}
