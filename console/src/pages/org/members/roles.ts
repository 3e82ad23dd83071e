import type { Me, Role } from '@/api/me'

/** Ordered from most to least privileged. */
export const ROLES: readonly { role: Role; may: string }[] = [
  { role: 'owner', may: 'everything, including the plan, other owners and deleting the organization' },
  { role: 'admin', may: 'settings, members, teams, applications, budgets, providers, webhooks, exports and all keys' },
  { role: 'member', may: 'prompts, datasets, evals, playground and skills, and keys of their own' },
  { role: 'viewer', may: 'read everything, change nothing' },
]

/** Why the user cannot grant or revoke `role`, or null. Only owners can change owners. */
export function roleChangeBlocker(me: Me, role: Role): string | null {
  if (!me.hasRole('admin')) return `Needs the role admin; you are ${me.role}`
  return role === 'owner' && !me.hasRole('owner') ? 'Only owners make and unmake owners' : null
}
