/** The form of a new limit, filled in from the terms of a query. */
import { parseTerms } from '@/lib/query'

export interface LimitLink {
  new: '1'
  user?: string
  /** Patterns, separated by commas. */
  model?: string
  /** Id of a key. */
  key?: string
}

/** A limit is for one key or user, and for models; other terms have no counterpart. */
export function limitOf(query: string, keys: readonly { id: string; name: string }[]): LimitLink {
  const link: LimitLink = { new: '1' }
  for (const { field, negated, values } of parseTerms(query)) {
    const [value] = values
    if (negated || value === undefined || value === '') continue
    if (field === 'model' && link.model === undefined) link.model = values.join(', ')
    if (values.length > 1 || value.includes('*')) continue
    if (field === 'user') link.user ??= value
    const key = field === 'key' && keys.find((one) => one.id === value || one.name.toLowerCase() === value.toLowerCase())
    if (key) link.key ??= key.id
  }
  return link
}
