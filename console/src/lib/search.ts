/**
 * Search parameters are plain text in the URL (`?status=5xx&log=123`), not JSON, so that users can read, share and type
 * them. Routes parse them with these functions; invalid values are dropped.
 */
export type RawSearch = Record<string, unknown>

export function parseSearch(search: string): RawSearch {
  return Object.fromEntries(new URLSearchParams(search))
}

export function stringifySearch(search: RawSearch): string {
  const params = new URLSearchParams()
  for (const [name, value] of Object.entries(search)) {
    if (value !== undefined && value !== null && value !== '') params.set(name, String(value))
  }
  const text = params.toString()
  return text === '' ? '' : `?${text}`
}

export function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

export function integer(value: unknown): number | undefined {
  const number = typeof value === 'number' ? value : typeof value === 'string' && value !== '' ? Number(value) : Number.NaN
  return Number.isSafeInteger(number) ? number : undefined
}

export function oneOf<T extends string>(value: unknown, allowed: readonly T[]): T | undefined {
  return allowed.find((candidate) => candidate === value)
}

export function instant(value: unknown): string | undefined {
  const written = text(value)
  return written && !Number.isNaN(Date.parse(written)) ? new Date(written).toISOString() : undefined
}
