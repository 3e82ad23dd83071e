import { expect, test } from 'vitest'
import { fieldsOf, parseFormValues, toFormValues } from './schemaForm'

const CONTAINS = {
  type: 'object',
  properties: {
    value: { anyOf: [{ $ref: '#/$defs/Literal' }, { type: 'null' }] },
    values: { type: ['array', 'null'], items: { $ref: '#/$defs/Literal' } },
    mode: { $ref: '#/$defs/Mode', description: 'One or all' },
    case_sensitive: { type: 'boolean', default: true },
    threshold: { type: 'number', minimum: 0, maximum: 1, default: 0.8 },
    schema: { description: 'Anything' },
  },
  required: ['threshold'],
  $defs: { Literal: { anyOf: [{ type: 'string' }, { type: 'number' }] }, Mode: { type: 'string', enum: ['any', 'all'] } },
}

test('fields are read from a schema with references', () => {
  expect(fieldsOf(CONTAINS).map((field) => [field.name, field.kind])).toEqual([
    ['value', 'literal'],
    ['values', 'list'],
    ['mode', 'choice'],
    ['case_sensitive', 'boolean'],
    ['threshold', 'number'],
    ['schema', 'json'],
  ])
  expect(fieldsOf(CONTAINS)[2]?.choices).toEqual(['any', 'all'])
})

test('form values round-trip through the config', () => {
  const fields = fieldsOf(CONTAINS)
  const typed = { values: 'a\nb', mode: 'all', case_sensitive: 'false', threshold: '0.5', schema: '{"a":1}' }
  const { value, problems } = parseFormValues(fields, typed)
  expect(problems).toEqual({})
  expect(value).toEqual({ values: ['a', 'b'], mode: 'all', case_sensitive: false, threshold: 0.5, schema: { a: 1 } })
  expect(parseFormValues(fields, toFormValues(fields, value)).value).toEqual(value)
})

test('missing and invalid fields are reported', () => {
  expect(parseFormValues(fieldsOf(CONTAINS), { schema: '{' }).problems).toEqual({ value: 'is required, or “Values”', threshold: 'is required', schema: 'must be JSON' })
})

test('of two fields that replace each other, one is required', () => {
  const fields = fieldsOf(CONTAINS)
  expect(fields.map((field) => field.alternative)).toEqual(['values', 'value', null, null, null, null])
  expect(parseFormValues(fields, { threshold: '1' }).problems).toEqual({ value: 'is required, or “Values”' })
  expect(parseFormValues(fields, { threshold: '1', values: 'a' }).problems).toEqual({})
})
