/** Editable form of a case field: strings as text, other values as JSON. */
export interface EditableValue {
  kind: 'text' | 'json'
  text: string
}

export function toEditable(value: unknown): EditableValue {
  return typeof value === 'string' ? { kind: 'text', text: value } : { kind: 'json', text: JSON.stringify(value, null, 2) }
}

export function parseEditable({ kind, text }: EditableValue): { value: unknown; problem: string | null } {
  if (kind === 'text') return { value: text, problem: null }
  if (text.trim() === '') return { value: null, problem: null }
  try {
    return { value: JSON.parse(text) as unknown, problem: null }
  } catch (error) {
    return { value: null, problem: `Not valid JSON: ${error instanceof Error ? error.message : 'it cannot be read'}` }
  }
}
