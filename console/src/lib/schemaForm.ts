/** A JSON Schema of an object as a form: which fields there are, and what was typed as the value that they stand for. */
import { isRecord } from '../api/error'

export type FieldKind = 'text' | 'long' | 'number' | 'boolean' | 'choice' | 'list' | 'json' | 'literal'

export interface SchemaField {
  name: string
  kind: FieldKind
  required: boolean
  description: string | null
  /** What holds when nothing is typed. */
  fallback: unknown
  choices: string[]
  min: number | null
  max: number | null
  whole: boolean
}

/** As typed, by field. */
export type Typed = Record<string, string>

type Schema = Record<string, unknown>

export function fieldsOf(schema: unknown): SchemaField[] {
  if (!isRecord(schema) || !isRecord(schema['properties'])) return []
  const required = Array.isArray(schema['required']) ? schema['required'] : []
  return Object.entries(schema['properties']).map(([name, raw]) => {
    const property = resolve(isRecord(raw) ? raw : {}, schema)
    return {
      name,
      kind: kindOf(name, property, schema),
      required: required.includes(name),
      description: typeof property['description'] === 'string' ? property['description'] : null,
      fallback: property['default'],
      choices: Array.isArray(property['enum']) ? property['enum'].map(String) : [],
      min: typeof property['minimum'] === 'number' ? property['minimum'] : null,
      max: typeof property['maximum'] === 'number' ? property['maximum'] : null,
      whole: typesOf(property).includes('integer'),
    }
  })
}

/** References lead to definitions beside the schema; a choice between something and nothing is the something. */
function resolve(property: Schema, root: Schema): Schema {
  const reference = property['$ref']
  if (typeof reference === 'string' && isRecord(root['$defs'])) {
    const target = root['$defs'][reference.replace('#/$defs/', '')]
    return { ...(isRecord(target) ? target : {}), ...property }
  }
  const options = Array.isArray(property['anyOf']) ? property['anyOf'].filter(isRecord).filter((option) => option['type'] !== 'null') : []
  const [only] = options
  return only && options.length === 1 ? { ...resolve(only, root), ...(property['description'] ? { description: property['description'] } : {}) } : property
}

function typesOf(property: Schema): unknown[] {
  return Array.isArray(property['type']) ? property['type'] : [property['type']]
}

const LONG = new Set(['criteria', 'reference'])

function kindOf(name: string, property: Schema, root: Schema): FieldKind {
  if (Array.isArray(property['enum'])) return 'choice'
  if (Array.isArray(property['anyOf'])) return 'literal'
  const types = typesOf(property)
  if (types.includes('boolean')) return 'boolean'
  if (types.includes('integer') || types.includes('number')) return 'number'
  if (types.includes('array')) return isRecord(property['items']) && kindOf('', resolve(property['items'], root), root) !== 'json' ? 'list' : 'json'
  if (types.includes('string')) return LONG.has(name) ? 'long' : 'text'
  return 'json'
}

/** What to send, or which field is wrong. Fields that were left empty are left out. */
export function readTyped(fields: readonly SchemaField[], typed: Typed): { value: Record<string, unknown>; problems: Record<string, string> } {
  const value: Record<string, unknown> = {}
  const problems: Record<string, string> = {}
  for (const field of fields) {
    const text = typed[field.name] ?? ''
    if (text.trim() === '') {
      if (field.required) problems[field.name] = 'is needed'
      continue
    }
    if (field.kind === 'number') {
      const number = Number(text)
      if (Number.isFinite(number)) value[field.name] = number
      else problems[field.name] = 'must be a number'
    } else if (field.kind === 'boolean') value[field.name] = text === 'true'
    else if (field.kind === 'list') value[field.name] = text.split('\n').filter((line) => line !== '')
    else if (field.kind === 'json') {
      try {
        value[field.name] = JSON.parse(text) as unknown
      } catch {
        problems[field.name] = 'must be JSON'
      }
    } else value[field.name] = text
  }
  return { value, problems }
}

/** A config that is there, as it would have been typed. */
export function writeTyped(fields: readonly SchemaField[], config: unknown): Typed {
  const given = isRecord(config) ? config : {}
  return Object.fromEntries(fields.flatMap((field) => (given[field.name] == null ? [] : [[field.name, written(field.kind, given[field.name])]])))
}

function written(kind: FieldKind, value: unknown): string {
  if (kind === 'list' && Array.isArray(value)) return value.map(String).join('\n')
  if (kind === 'json') return JSON.stringify(value, null, 2)
  return typeof value === 'string' ? value : JSON.stringify(value)
}
