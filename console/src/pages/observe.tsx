/** Routes of this area; the pages are in `pages/observe/`. */
import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import type { OwnCalls } from '@/lib/query'
import { oneOf } from '@/lib/search'
import { shellRoute } from '@/routes'
import { readAlertsSearch, type AlertsSearch } from './observe/alerts/search'
import { readLogsSearch, type LogsSearch } from './observe/logs/search'
import { readSessionSearch, readSessionsSearch, type SessionSearch, type SessionsSearch } from './observe/sessions/search'
import { readUsageSearch, type UsageSearch } from './observe/usage/search'

const startRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/start',
  component: lazyRouteComponent(() => import('./observe/Start'), 'Start'),
})
const overviewRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/',
  validateSearch: (search: Record<string, unknown>): { own?: OwnCalls } => ({ own: oneOf(search['own'], ['show'] as const) }),
  component: lazyRouteComponent(() => import('./observe/Overview'), 'Overview'),
})
const logsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/logs',
  validateSearch: (search: Record<string, unknown>): LogsSearch => readLogsSearch(search),
  component: lazyRouteComponent(() => import('./observe/Logs'), 'Logs'),
})
const sessionsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/sessions',
  validateSearch: (search: Record<string, unknown>): SessionsSearch => readSessionsSearch(search),
  component: lazyRouteComponent(() => import('./observe/Sessions'), 'Sessions'),
})
const sessionRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/sessions/$sessionId',
  validateSearch: (search: Record<string, unknown>): SessionSearch => readSessionSearch(search),
  component: lazyRouteComponent(() => import('./observe/Session'), 'Session'),
})
const usageRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/usage',
  validateSearch: (search: Record<string, unknown>): UsageSearch => readUsageSearch(search),
  component: lazyRouteComponent(() => import('./observe/Usage'), 'Usage'),
})
const alertsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/alerts',
  validateSearch: (search: Record<string, unknown>): AlertsSearch => readAlertsSearch(search),
  component: lazyRouteComponent(() => import('./observe/alerts/Alerts'), 'Alerts'),
})

export const observeRoutes = [overviewRoute, startRoute, logsRoute, sessionsRoute, sessionRoute, usageRoute, alertsRoute] as const
