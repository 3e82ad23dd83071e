/** Renders a JSON Schema object as form fields and converts form values to JSON and back. */
import { isRecord } from '../api/error'

export type FieldKind = 'text' | 'long' | 'number' | 'boolean' | 'choice' | 'list' | 'json' | 'literal'

export interface SchemaField {
  name: string
  kind: FieldKind
  required: boolean
  description: string | null
  /** Used when the field is empty. */
  defaultValue: unknown
  choices: string[]
  min: number | null
  max: number | null
  integer: boolean
  /** The other field of a pair of which one is required. */
  alternative: string | null
}

/** Raw input text by field name. */
export type FormValues = Record<string, string>

type Schema = Record<string, unknown>

/** Optional fields of which a schema cannot say that one is required. */
const PAIRS: readonly (readonly string[])[] = [
  ['value', 'values'],
  ['min', 'max'],
]

export function fieldsOf(schema: unknown): SchemaField[] {
  if (!isRecord(schema) || !isRecord(schema['properties'])) return []
  const properties = schema['properties']
  const required = Array.isArray(schema['required']) ? schema['required'] : []
  const isOptional = (name: string) => name in properties && !required.includes(name)
  return Object.entries(properties).map(([name, raw]) => {
    const property = resolveSchema(isRecord(raw) ? raw : {}, schema)
    return {
      name,
      kind: fieldKind(name, property, schema),
      required: required.includes(name),
      description: typeof property['description'] === 'string' ? property['description'] : null,
      defaultValue: property['default'],
      choices: Array.isArray(property['enum']) ? property['enum'].map(String) : [],
      min: typeof property['minimum'] === 'number' ? property['minimum'] : null,
      max: typeof property['maximum'] === 'number' ? property['maximum'] : null,
      integer: schemaTypes(property).includes('integer'),
      alternative: PAIRS.find((pair) => pair.includes(name) && pair.every(isOptional))?.find((other) => other !== name) ?? null,
    }
  })
}

/** Resolves `$ref` and unwraps nullable types (`anyOf` of one type and null). */
function resolveSchema(property: Schema, root: Schema): Schema {
  const reference = property['$ref']
  if (typeof reference === 'string' && isRecord(root['$defs'])) {
    const target = root['$defs'][reference.replace('#/$defs/', '')]
    return { ...(isRecord(target) ? target : {}), ...property }
  }
  const options = Array.isArray(property['anyOf']) ? property['anyOf'].filter(isRecord).filter((option) => option['type'] !== 'null') : []
  const [only] = options
  return only && options.length === 1 ? { ...resolveSchema(only, root), ...(property['description'] ? { description: property['description'] } : {}) } : property
}

function schemaTypes(property: Schema): unknown[] {
  return Array.isArray(property['type']) ? property['type'] : [property['type']]
}

const MULTILINE_FIELDS = new Set(['criteria', 'reference'])

function fieldKind(name: string, property: Schema, root: Schema): FieldKind {
  if (Array.isArray(property['enum'])) return 'choice'
  if (Array.isArray(property['anyOf'])) return 'literal'
  const types = schemaTypes(property)
  if (types.includes('boolean')) return 'boolean'
  if (types.includes('integer') || types.includes('number')) return 'number'
  if (types.includes('array')) return isRecord(property['items']) && fieldKind('', resolveSchema(property['items'], root), root) !== 'json' ? 'list' : 'json'
  if (types.includes('string')) return MULTILINE_FIELDS.has(name) ? 'long' : 'text'
  return 'json'
}

/** `case_sensitive` as `Case sensitive`. */
export function fieldName(name: string): string {
  const words = name.replaceAll('_', ' ')
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`
}

/** Converts form values to JSON, with error messages by field. Empty fields are omitted. */
export function parseFormValues(fields: readonly SchemaField[], values: FormValues): { value: Record<string, unknown>; problems: Record<string, string> } {
  const value: Record<string, unknown> = {}
  const problems: Record<string, string> = {}
  for (const field of fields) {
    const text = values[field.name] ?? ''
    if (text.trim() === '') {
      if (field.required) problems[field.name] = 'is required'
      else if (field.alternative !== null && (values[field.alternative] ?? '').trim() === '' && !(field.alternative in problems)) problems[field.name] = `is required, or “${fieldName(field.alternative)}”`
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

/** Converts an existing config to form values. */
export function toFormValues(fields: readonly SchemaField[], config: unknown): FormValues {
  const given = isRecord(config) ? config : {}
  return Object.fromEntries(fields.flatMap((field) => (given[field.name] == null ? [] : [[field.name, formatValue(field.kind, given[field.name])]])))
}

function formatValue(kind: FieldKind, value: unknown): string {
  if (kind === 'list' && Array.isArray(value)) return value.map(String).join('\n')
  if (kind === 'json') return JSON.stringify(value, null, 2)
  return typeof value === 'string' ? value : JSON.stringify(value)
}
