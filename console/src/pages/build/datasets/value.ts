/** A part of a case while it is edited: a text as it is, anything else as JSON. */
export interface Written {
  kind: 'text' | 'json'
  text: string
}

export function writeValue(value: unknown): Written {
  return typeof value === 'string' ? { kind: 'text', text: value } : { kind: 'json', text: JSON.stringify(value, null, 2) }
}

export function readValue({ kind, text }: Written): { value: unknown; problem: string | null } {
  if (kind === 'text') return { value: text, problem: null }
  if (text.trim() === '') return { value: null, problem: null }
  try {
    return { value: JSON.parse(text) as unknown, problem: null }
  } catch (error) {
    return { value: null, problem: `No JSON: ${error instanceof Error ? error.message : 'it cannot be read'}` }
  }
}
