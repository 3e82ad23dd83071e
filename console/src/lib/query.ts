/**
 * The text of a query (`status:error latency:>2s -source:api "exact words"`): finds its terms, and adds, removes and
 * completes them. The server is the one that judges whether a query is valid.
 */

export interface QueryTerm {
  /** Offsets in the text, the minus sign included. */
  start: number
  end: number
  negated: boolean
  /** Null for words to search for. */
  field: string | null
  /** The values without quotes; for words, the text. */
  values: string[]
}

export function parseTerms(text: string): QueryTerm[] {
  const terms: QueryTerm[] = []
  let at = 0
  while (at < text.length) {
    if (/\s/.test(text[at] ?? '')) {
      at += 1
      continue
    }
    const start = at
    const negated = text[at] === '-'
    if (negated) at += 1
    const name = /^[^\s":]+(?=:)/.exec(text.slice(at))?.[0] ?? null
    if (name !== null) at += name.length + 1
    const values: string[] = []
    do {
      if (name !== null && values.length > 0) at += 1
      const [value, end] = readValue(text, at, name !== null)
      values.push(value)
      at = end
    } while (name !== null && text[at] === ',')
    // A quote that is not closed, or a stray character, must not stop the loop.
    if (at === start) at += 1
    terms.push({ start, end: at, negated, field: name, values })
  }
  return terms
}

function readValue(text: string, from: number, inList: boolean): [string, number] {
  if (text[from] !== '"') {
    const value = (inList ? /^[^\s,]*/ : /^\S*/).exec(text.slice(from))?.[0] ?? ''
    return [value, from + value.length]
  }
  let value = ''
  let at = from + 1
  for (; at < text.length && text[at] !== '"'; at++) {
    if (text[at] === '\\' && /["\\]/.test(text[at + 1] ?? '')) at += 1
    value += text[at]
  }
  return [value, Math.min(text.length, at + 1)]
}

/** A value as it stands in a query: in quotes where it has characters with a meaning. */
export function quoteValue(value: string): string {
  return value === '' || /[\s,"*\\]|^[<>]|\.\./.test(value) ? `"${value.replace(/["\\]/g, '\\$&')}"` : value
}

/** Words to search for as they were typed; in quotes where a character has a meaning in queries. */
export function searchText(input: string): string {
  return /[":()]|(^|\s)-/.test(input) ? `"${input.replace(/["\\]/g, '\\$&')}"` : input.trim()
}

/** `field:value`, for links to the logs. */
export function term(field: string, value: string | number): string {
  return `${field}:${quoteValue(String(value))}`
}

export function joinTerms(...parts: (string | undefined | null | false)[]): string {
  return parts.filter((part): part is string => typeof part === 'string' && part.trim() !== '').map((part) => part.trim()).join(' ')
}

/** How a value of a field is used: `in` a term, excluded by a negated one, or not at all. */
export function valueState(query: string, field: string, value: string): 'in' | 'out' | null {
  for (const one of parseTerms(query)) {
    if (one.field === field && one.values.includes(value)) return one.negated ? 'out' : 'in'
  }
  return null
}

/** Adds a value to the query (`in`: one of the values of the field; `out`: excluded), or removes it with null. */
export function setValue(query: string, field: string, value: string, state: 'in' | 'out' | null): string {
  let placed = state === null
  const parts = parseTerms(query).map((one) => {
    if (one.field !== field) return query.slice(one.start, one.end)
    const values = one.values.filter((other) => other !== value)
    const isTarget = !placed && one.negated === (state === 'out')
    if (isTarget) placed = true
    if (isTarget && !values.includes(value)) values.push(value)
    return values.length === 0 ? '' : `${one.negated ? '-' : ''}${field}:${values.map((other) => keepPattern(query, one, other)).join(',')}`
  })
  if (!placed) parts.push(`${state === 'out' ? '-' : ''}${term(field, value)}`)
  return joinTerms(...parts)
}

/** A value that stood without quotes keeps its meaning: `gpt-4o*`, `>2s`. */
function keepPattern(query: string, one: QueryTerm, value: string): string {
  const quoted = quoteValue(value)
  if (quoted === value) return value
  return query.slice(one.start, one.end).includes(quoted) || !one.values.includes(value) ? quoted : value
}

export function withoutField(query: string, field: string): string {
  return joinTerms(...parseTerms(query).filter((one) => one.field !== field).map((one) => query.slice(one.start, one.end)))
}

export function hasField(query: string, field: string): boolean {
  return parseTerms(query).some((one) => one.field === field)
}

/** The words that are searched for, for marking them in texts. */
export function searchedWords(query: string): string[] {
  const terms = parseTerms(query).filter((one) => one.field === null && !one.negated)
  return terms.flatMap((one) => (one.values[0] ?? '').split(/[^\p{L}\p{N}]+/u)).filter((word) => word.length > 0)
}

export interface Completion {
  /** The value of this field is typed, or null while a field is. */
  field: string | null
  /** What is typed so far, without quotes. */
  prefix: string
  /** The range of the text that a suggestion replaces. */
  from: number
  to: number
}

/** What can be completed at the caret. */
export function completionAt(text: string, caret: number): Completion | null {
  const inside = parseTerms(text.slice(0, caret)).at(-1)
  if (!inside || inside.end < caret) return { field: null, prefix: '', from: caret, to: caret }
  const written = text.slice(inside.start, caret)
  const restEnd = caret + (/^[^\s,"]*/.exec(text.slice(caret))?.[0].length ?? 0)
  if (inside.field === null) {
    const prefix = inside.values[0] ?? ''
    if (written.includes('"')) return null
    return { field: null, prefix, from: caret - prefix.length, to: restEnd }
  }
  const value = inside.values.at(-1) ?? ''
  const open = /"(?:[^"\\]|\\.)*$/.exec(written.slice(written.indexOf(':') + 1).replace(/"(?:[^"\\]|\\.)*"/g, (closed) => '.'.repeat(closed.length)))
  const length = open ? open[0].length : value.length
  return { field: inside.field, prefix: value, from: caret - length, to: restEnd }
}

/** Sources of the gateway's own calls: the playground, evals and replays. */
export const OWN_SOURCES: readonly string[] = ['api', 'replay']
export const OWN_CALLS_EXCLUDED = `-source:${OWN_SOURCES.join(',')}`

/** Whether the gateway's own calls are shown; a page leaves them out without it. */
export type OwnCalls = 'show' | undefined

/** The query that is sent: without the gateway's own calls, unless they are asked for or the query names a source. */
export function withOwnCalls(query: string, own: OwnCalls): string {
  return own === 'show' || hasField(query, 'source') ? query : joinTerms(query, OWN_CALLS_EXCLUDED)
}
