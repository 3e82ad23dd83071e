/**
 * Conditions of a conditional model. Simple queries are edited as a list of rules that must all hold; all others, such
 * as those with `$or`, as JSON.
 */
import { isRecord } from '@/api/error'

export const OPERATORS = {
  $eq: 'is',
  $ne: 'is not',
  $gt: '>',
  $gte: '≥',
  $lt: '<',
  $lte: '≤',
  $in: 'is one of',
  $nin: 'is none of',
  $regex: 'matches',
} as const
export type Operator = keyof typeof OPERATORS

export const QUERY_FIELDS = ['metadata.', 'params.', 'headers.x-', 'path', 'user', 'input_tokens'] as const

export interface Rule {
  key: string
  field: string
  operator: Operator
  /** `paid`, `1.5`, `true`, `"5"` for the text 5; a list has commas. */
  value: string
}

export type Query = Record<string, unknown>

/** The rules of a query, or null if rules cannot express it. */
export function parseRules(query: Query, newKey: () => string): Rule[] | null {
  const rules: Rule[] = []
  for (const [field, wanted] of Object.entries(query)) {
    if (field.startsWith('$')) return null
    const operators = isRecord(wanted) ? Object.entries(wanted) : [['$eq', wanted] as const]
    for (const [operator, operand] of operators) {
      const value = isOperator(operator) ? formatOperand(operator, operand) : null
      if (value === null) return null
      rules.push({ key: newKey(), field, operator: operator as Operator, value })
    }
  }
  return rules
}

/** The query that all rules must hold in. */
export function formatRules(rules: readonly Rule[]): Query {
  const query: Record<string, Record<string, unknown>> = {}
  for (const { field, operator, value } of rules) {
    const name = field.trim()
    // One object cannot have the same operator twice.
    if (query[name] && operator in query[name]) return { $and: rules.map((rule) => formatRules([rule])) }
    query[name] = { ...query[name], [operator]: parseOperand(operator, value) }
  }
  return query
}

/** `metadata.plan is paid and input_tokens > 1000`, for people. */
export function describeQuery(query: Query): string {
  const rules = parseRules(query, () => '')
  if (rules === null) return JSON.stringify(query)
  return rules.map(({ field, operator, value }) => `${field} ${OPERATORS[operator]} ${value}`).join(' and ')
}

function isOperator(name: string): name is Operator {
  return name in OPERATORS
}

function isList(operator: Operator): boolean {
  return operator === '$in' || operator === '$nin'
}

function parseOperand(operator: Operator, text: string): unknown {
  if (operator === '$regex') return text
  if (!isList(operator)) return parseScalar(text)
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .map(parseScalar)
}

function parseScalar(text: string): unknown {
  const trimmed = text.trim()
  if (trimmed === 'true' || trimmed === 'false') return trimmed === 'true'
  if (/^-?\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed)
  const quoted = /^"(.*)"$/s.exec(trimmed)
  return quoted?.[1] ?? trimmed
}

function formatOperand(operator: Operator, operand: unknown): string | null {
  if (operator === '$regex') return typeof operand === 'string' ? operand : null
  if (!isList(operator)) return formatScalar(operand)
  if (!Array.isArray(operand)) return null
  const parts = operand.map(formatScalar)
  return parts.some((part) => part === null || part.includes(',')) ? null : parts.join(', ')
}

function formatScalar(value: unknown): string | null {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (typeof value !== 'string') return null
  return parseScalar(value) === value ? value : `"${value}"`
}
