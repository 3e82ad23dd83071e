/** The signed-in user, with role, plan and entitlements. */
import { api, type Schemas } from './client'
import { useSession } from './session'

export type Role = Schemas['Role']
export type Entitlement = Schemas['Entitlement']

const ROLE_RANK: Record<Role, number> = { viewer: 0, member: 1, admin: 2, owner: 3 }

export interface Me {
  userId: string
  email: string
  orgId: string
  org: Schemas['OrgWithRole'] | undefined
  orgs: Schemas['OrgWithRole'][]
  role: Role
  plan: Schemas['Plan'] | undefined
  /** False until the plan is loaded, so that the UI does not offer a feature and then withdraw it. */
  isLoaded: boolean
  hasRole(role: Role): boolean
  hasEntitlement(entitlement: Entitlement): boolean
}

export function useMe(): Me {
  const session = useSession()
  const enabled = session !== null
  const entitlements = api.useQuery('get', '/api/v1/auth/entitlements', {}, { enabled, staleTime: 60_000 })
  const orgs = api.useQuery('get', '/api/v1/auth/orgs', {}, { enabled, staleTime: 60_000 })
  const role = entitlements.data?.role ?? parseRole(session?.role)
  const list = orgs.data?.orgs ?? []
  return {
    userId: session?.userId ?? '',
    email: session?.email ?? '',
    orgId: session?.orgId ?? '',
    org: list.find((org) => org.id === session?.orgId),
    orgs: list,
    role,
    plan: entitlements.data?.plan,
    isLoaded: entitlements.data !== undefined,
    hasRole: (required) => ROLE_RANK[role] >= ROLE_RANK[required],
    hasEntitlement: (entitlement) => entitlements.data?.entitlements.includes(entitlement) ?? false,
  }
}

/** Why the user may not read the audit log, or null: admins may, and the members that the organization names. */
export function useAuditReason(): string | null {
  const me = useMe()
  const isAdmin = me.hasRole('admin')
  const org = api.useQuery('get', '/api/v1/orgs/{orgId}', { params: { path: { orgId: me.orgId } } }, { enabled: !isAdmin && me.orgId !== '', staleTime: 60_000 })
  const mayRead = isAdmin || (org.data?.settings.auditors.includes(me.userId) ?? false)
  return mayRead ? null : `Needs the role admin, or to be named as an auditor; you are ${me.role}`
}

function parseRole(claim: string | undefined): Role {
  return claim === 'owner' || claim === 'admin' || claim === 'member' ? claim : 'viewer'
}
