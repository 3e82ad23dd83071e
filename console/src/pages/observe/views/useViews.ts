import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'

export type View = Schemas['View']
export type ViewPage = Schemas['ViewPage']

const PATH = '/api/v1/orgs/{orgId}/views'

/** The saved views of a page, and what can be done with them. */
export function useViews(page: ViewPage) {
  const me = useMe()
  const list = api.useQuery('get', PATH, { params: { path: { orgId: me.orgId }, query: { page, limit: 200 } } }, { staleTime: 60_000, enabled: me.orgId !== '', retry: false, meta: { quiet: true } })
  const views = list.data?.views ?? []
  const mine = views.filter((view) => view.created_by === me.userId)
  const changed = async <T>(call: Promise<{ data?: T }>): Promise<T> => {
    const result = await unwrap(call)
    await invalidate(PATH)
    return result
  }
  const at = (view: View) => ({ path: { orgId: me.orgId, viewId: view.id } })
  return {
    mine,
    others: views.filter((view) => view.created_by !== me.userId),
    isLoaded: list.data !== undefined,
    error: list.error,
    mayShare: me.hasRole('member'),
    mayChange: (view: View) => view.created_by === me.userId || me.hasRole('admin'),
    isMine: (view: View) => view.created_by === me.userId,
    create: (body: Schemas['NewView']) => changed(client.POST(PATH, { params: { path: { orgId: me.orgId } }, body })),
    change: (view: View, body: Schemas['ViewChange']) => changed(client.PATCH('/api/v1/orgs/{orgId}/views/{viewId}', { params: at(view), body })),
    remove: (view: View) => changed(client.DELETE('/api/v1/orgs/{orgId}/views/{viewId}', { params: at(view) })),
  }
}

export type Views = ReturnType<typeof useViews>
