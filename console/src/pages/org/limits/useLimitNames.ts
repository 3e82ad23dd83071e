/** Names of what limits are for, and the limits in words. */
import type { Schemas } from '@/api/client'
import { limitSentence, type LimitWords } from '@/lib/limits'
import { useScopeNames } from '../budgets/useScopeNames'

export interface LimitNames {
  choices: (scope: Schemas['LimitScope']) => { value: string; label: string }[]
  sentence: (limit: LimitWords) => string
}

export function useLimitNames(): LimitNames {
  const names = useScopeNames()
  const choices: LimitNames['choices'] = (scope) => (scope === 'model' ? [] : names.choices(scope))
  const sentence = (limit: LimitWords) => {
    const id = limit.scope_id ?? ''
    return limitSentence(limit, limit.scope === 'model' || limit.scope === 'org' ? id : names.of(limit.scope, id))
  }
  return { choices, sentence }
}
