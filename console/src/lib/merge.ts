/** Merges two lists sorted newest first. For duplicate ids the row of the first list wins. */
export function mergeNewestFirst<Row extends { id: number }>(first: readonly Row[], second: readonly Row[]): readonly Row[] {
  if (first.length === 0) return second
  if (second.length === 0) return first
  const merged: Row[] = []
  let a = 0
  let b = 0
  while (a < first.length || b < second.length) {
    const left = first[a]
    const right = second[b]
    if (left && (!right || left.id >= right.id)) {
      merged.push(left)
      a++
      if (right && right.id === left.id) b++
    } else if (right) {
      merged.push(right)
      b++
    }
  }
  return merged
}
