/** Routes of this area; the pages are in `pages/org/`. */
import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { readAuditSearch, type AuditSearch } from '@/lib/auditSearch'
import { oneOf, text } from '@/lib/search'
import { shellRoute } from '@/routes'

/** A link to the form of a new limit, with what it is about. */
export interface LimitsSearch {
  new?: '1'
  user?: string
  model?: string
  /** Id of a key. */
  key?: string
}

const membersRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/org/members',
  component: lazyRouteComponent(() => import('./org/members/Members'), 'Members'),
})
const teamsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/org/teams',
  component: lazyRouteComponent(() => import('./org/Teams'), 'Teams'),
})
const appsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/org/apps',
  component: lazyRouteComponent(() => import('./org/Apps'), 'Apps'),
})
const budgetsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/org/budgets',
  component: lazyRouteComponent(() => import('./org/budgets/Budgets'), 'Budgets'),
})
const limitsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/org/limits',
  validateSearch: (search: Record<string, unknown>): LimitsSearch => ({ new: oneOf(search['new'], ['1'] as const), user: text(search['user']), model: text(search['model']), key: text(search['key']) }),
  component: lazyRouteComponent(() => import('./org/limits/Limits'), 'Limits'),
})
const auditRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/org/audit',
  validateSearch: (search: Record<string, unknown>): AuditSearch => readAuditSearch(search),
  component: lazyRouteComponent(() => import('./org/audit/Audit'), 'Audit'),
})
const settingsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/org/settings',
  component: lazyRouteComponent(() => import('./org/Settings'), 'Settings'),
})

export const orgRoutes = [membersRoute, teamsRoute, appsRoute, budgetsRoute, limitsRoute, auditRoute, settingsRoute] as const
