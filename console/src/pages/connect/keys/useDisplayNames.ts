/** Resolves user and application ids of keys to display names. */
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'

export interface DisplayNames {
  person: (id: string | null) => string | null
  app: (id: string | null) => string | null
  apps: Schemas['Application'][]
}

export function useDisplayNames(): DisplayNames {
  const { orgId } = useMe()
  const path = { path: { orgId }, query: { limit: 200 } }
  const members = api.useQuery('get', '/api/v1/orgs/{orgId}/members', { params: path })
  const apps = api.useQuery('get', '/api/v1/orgs/{orgId}/apps', { params: path })
  return {
    person: (id) => members.data?.members.find((member) => member.user_id === id)?.display_name ?? null,
    app: (id) => apps.data?.apps.find((app) => app.id === id)?.name ?? null,
    apps: apps.data?.apps ?? [],
  }
}
