/** Display names of budget scopes. */
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { EVERY_USER } from '@/lib/budget'

type Scope = Schemas['BudgetScope']

export interface ScopeNames {
  of: (scope: Scope, id: string) => string
  choices: (scope: Scope) => { value: string; label: string }[]
}

export function useScopeNames(): ScopeNames {
  const { orgId, org } = useMe()
  const params = { path: { orgId }, query: { limit: 200 } }
  const teams = api.useQuery('get', '/api/v1/orgs/{orgId}/teams', { params })
  const apps = api.useQuery('get', '/api/v1/orgs/{orgId}/apps', { params })
  const keys = api.useQuery('get', '/api/v1/keys', { params: { query: { limit: 200 } } })
  const choices = (scope: Scope): { value: string; label: string }[] => {
    switch (scope) {
      case 'org':
        return [{ value: orgId, label: org?.name ?? 'the organization' }]
      case 'team':
        return (teams.data?.teams ?? []).map((team) => ({ value: team.id, label: team.name }))
      case 'app':
        return (apps.data?.apps ?? []).map((app) => ({ value: app.id, label: app.name }))
      case 'key':
        return (keys.data?.keys ?? []).filter((key) => key.revoked_at === null).map((key) => ({ value: key.id, label: `${key.name} (${key.key_prefix}…)` }))
      case 'user':
        return []
    }
  }
  const ofUser = (id: string) => (id === EVERY_USER ? 'Each user' : id)
  return { choices, of: (scope, id) => (scope === 'user' ? ofUser(id) : undefined) ?? choices(scope).find((choice) => choice.value === id)?.label ?? `a ${scope} that is gone` }
}
