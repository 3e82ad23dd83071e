import type { Me, Role } from '@/api/me'

/** Ordered from most to least privileged. */
export const ROLES: readonly { role: Role; may: string }[] = [
  { role: 'owner', may: 'everything, including the plan, other owners and deleting the organization' },
  { role: 'admin', may: 'settings, members, teams, applications, budgets, limits, alerts, providers, models, MCP servers, webhooks, exports, and the keys of everyone' },
  { role: 'member', may: 'prompts, playground, datasets, evals, replays and skills, and their own keys' },
  { role: 'viewer', may: 'reads everything, changes nothing' },
]

/** Why the user cannot grant or revoke `role`, or null. Only owners can change owners. */
export function roleChangeBlocker(me: Me, role: Role): string | null {
  if (!me.hasRole('admin')) return `Needs the role admin; you are ${me.role}`
  return role === 'owner' && !me.hasRole('owner') ? 'Only owners can add or remove owners' : null
}
