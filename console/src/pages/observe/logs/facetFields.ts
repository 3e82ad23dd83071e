/** Which fields of the sidebar the server can count from its sums, whatever the number of rows. */
import { hasField } from '@/lib/query'

const SUMMED = ['status', 'provider', 'model', 'key', 'app', 'team', 'user', 'prompt']
/** Only rows have them. */
const OF_ROWS = ['error', 'level', 'source', 'tool', 'cache']

/** The fields of the two requests. No sums have users with statuses, nor prompts with either of them. */
export function splitFields(query: string): [summed: string[], counted: string[]] {
  const apart = ['user', 'status', 'prompt'].filter((field) => hasField(query, field))
  const isSummed = (field: string): boolean => {
    if (field === 'prompt') return apart.length === 0
    return !['user', 'status'].includes(field) || apart.every((other) => other === field)
  }
  return [SUMMED.filter(isSummed), [...SUMMED.filter((field) => !isSummed(field)), ...OF_ROWS]]
}
