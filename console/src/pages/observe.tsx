/** The routes of this area, each with its page in `pages/observe/`. */
import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { shellRoute } from '@/routes'

const startRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/start',
  component: lazyRouteComponent(() => import('./observe/Start'), 'Start'),
})
const overviewRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/',
  component: lazyRouteComponent(() => import('./observe/Overview'), 'Overview'),
})
const accountRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/account',
  component: lazyRouteComponent(() => import('./observe/Account'), 'Account'),
})

export const observeRoutes = [overviewRoute, startRoute, accountRoute] as const
