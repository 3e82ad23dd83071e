/** Suggestions for the query box: fields by name, values from the API. */
import { keepPreviousData } from '@tanstack/react-query'
import { useDeferredValue } from 'react'
import { api, type Schemas } from '@/api/client'
import { quoteValue, type Completion } from '@/lib/query'
import { statusWord } from '@/lib/statusWords'

export interface Suggestion {
  /** Text that replaces what is typed. */
  insert: string
  label: string
  about?: string | undefined
}

const MAX_SUGGESTIONS = 12
/** Fields whose values are read from the log rows or the resources. */
const LISTED = new Set(['text', 'name'])
const STATUSES = ['error', 'ok', '2xx', '4xx', '5xx', '400', '401', '403', '429', '499', '500', '502', '503', '504']

export function useCompletion(completion: Completion | null): Suggestion[] {
  const fields = api.useQuery('get', '/api/v1/logs/fields', {}, { staleTime: Number.POSITIVE_INFINITY, enabled: completion !== null })
  const wanted = useDeferredValue(completion)
  const field = wanted?.field ?? null
  const info = fields.data?.fields.find((one) => one.name === (field?.startsWith('metadata.') ? 'metadata' : field))
  const isKey = wanted?.field === null && wanted.prefix.startsWith('metadata.')
  const listed = isKey || (info !== undefined && LISTED.has(info.type))
  const query = isKey ? { field: 'metadata', prefix: wanted.prefix.slice('metadata.'.length), limit: MAX_SUGGESTIONS } : { field: field ?? 'model', prefix: wanted?.prefix ?? '', limit: MAX_SUGGESTIONS }
  const values = api.useQuery('get', '/api/v1/logs/values', { params: { query } }, { enabled: listed, staleTime: 30_000, placeholderData: keepPreviousData, retry: false, meta: { quiet: true } })
  if (completion === null || !fields.data) return []
  if (completion.field === null) {
    if (isKey) return (values.data?.values ?? []).map((key) => ({ insert: `metadata.${key}:`, label: `metadata.${key}`, about: 'Metadata of the request' }))
    return fieldSuggestions(fields.data.fields, completion.prefix)
  }
  const prefix = completion.prefix.toLowerCase()
  const known = listed ? values.data?.field === query.field ? values.data.values : [] : fixedValues(info)
  const found = known.filter((value) => value.toLowerCase().startsWith(prefix) && value !== completion.prefix)
  if (found.length > 0) return found.slice(0, MAX_SUGGESTIONS).map((value) => ({ insert: `${quoteValue(value)} `, label: value, about: info?.type === 'status' ? statusWord(value) : undefined }))
  // Numbers, durations and times have no list: show how one is written.
  return completion.prefix === '' && info && !listed ? [{ insert: exampleValue(info), label: exampleValue(info), about: info.description }] : []
}

function fieldSuggestions(fields: readonly Schemas['QueryField'][], prefix: string): Suggestion[] {
  const typed = prefix.toLowerCase()
  const matching = fields.filter((one) => one.name.startsWith(typed))
  return matching.slice(0, typed === '' ? 10 : MAX_SUGGESTIONS).map((one) => {
    const name = one.name === 'metadata' ? 'metadata.' : `${one.name}:`
    return { insert: name, label: one.name, about: `${one.description} ${one.example}` }
  })
}

function fixedValues(info: Schemas['QueryField'] | undefined): string[] {
  if (info?.type === 'status') return STATUSES
  return info?.type === 'choice' || info?.type === 'boolean' ? info.values : []
}

function exampleValue(info: Schemas['QueryField']): string {
  return info.example.slice(info.example.indexOf(':') + 1)
}
