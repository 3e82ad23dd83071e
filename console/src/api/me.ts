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

function parseRole(claim: string | undefined): Role {
  return claim === 'owner' || claim === 'admin' || claim === 'member' ? claim : 'viewer'
}
