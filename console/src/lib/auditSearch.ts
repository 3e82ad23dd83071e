/** Filters of the audit log in the URL. */
export interface AuditSearch {
  actor?: string
  action?: string
  target_type?: string
  target_id?: string
  outcome?: 'success' | 'denied' | 'failed'
  q?: string
}

export const OUTCOMES = ['success', 'denied', 'failed'] as const

export function readAuditSearch(search: Record<string, unknown>): AuditSearch {
  const read: AuditSearch = {}
  for (const name of ['actor', 'action', 'target_type', 'target_id', 'q'] as const) {
    const value = search[name]
    if (typeof value === 'string' && value) read[name] = value
    else if (typeof value === 'number') read[name] = String(value)
  }
  const outcome = OUTCOMES.find((known) => known === search['outcome'])
  if (outcome) read.outcome = outcome
  return read
}
