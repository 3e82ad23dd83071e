/** The bounds of members' keys as a form has them. */
import type { Schemas } from '@/api/client'

type Bounds = Schemas['Organization']['settings']['self_service_keys']

export interface BoundsDraft {
  isOn: boolean
  /** One per line. */
  scopes: string
  budget: string
  max: string
}

export function draftOf(bounds: Bounds): BoundsDraft {
  return {
    isOn: bounds !== null && bounds !== undefined,
    scopes: (bounds?.scopes ?? ['proxy']).join('\n'),
    budget: bounds?.budget_usd?.toString() ?? '',
    max: bounds?.max?.toString() ?? '',
  }
}

/** Null: members are not bound. */
export function boundsOf(draft: BoundsDraft): NonNullable<Bounds> | null {
  if (!draft.isOn) return null
  const number = (text: string): number | null => (text.trim() === '' ? null : Number(text))
  return { scopes: draft.scopes.split(/\s+/).filter(Boolean), budget_usd: number(draft.budget), max: number(draft.max) }
}
