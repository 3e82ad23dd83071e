import type { Me, Role } from '@/api/me'

/** Highest first. */
export const ROLES: readonly { role: Role; may: string }[] = [
  { role: 'owner', may: 'everything, also the plan, other owners and deleting the organization' },
  { role: 'admin', may: 'settings, members, teams, applications, budgets, providers, webhooks, exports and all keys' },
  { role: 'member', may: 'prompts, datasets, evals, playground and skills, and keys of their own' },
  { role: 'viewer', may: 'look at everything, change nothing' },
]

/** Why somebody's role cannot be given or taken by this person; null when it can. Only owners make and unmake owners. */
export function whyNotAssign(me: Me, role: Role): string | null {
  if (!me.may('admin')) return `Needs the role admin; you are ${me.role}`
  return role === 'owner' && !me.may('owner') ? 'Only owners make and unmake owners' : null
}
