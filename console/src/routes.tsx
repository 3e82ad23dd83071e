/** The root route of public pages and the layout route of signed-in pages. */
import { createRootRoute, createRoute, lazyRouteComponent, Outlet, redirect, retainSearchParams } from '@tanstack/react-router'
import { getSession } from './api/session'
import { parseRange, type RangeSearch } from './lib/range'
import { NotFound } from './shell/NotFound'

export const rootRoute = createRootRoute({ component: Outlet, notFoundComponent: NotFound })

export const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  component: lazyRouteComponent(() => import('./shell/Shell'), 'Shell'),
  notFoundComponent: NotFound,
  validateSearch: (search: Record<string, unknown>): RangeSearch => parseRange(search),
  // Keep the time range when navigating between pages.
  search: { middlewares: [retainSearchParams(['range', 'from', 'to'])] },
  beforeLoad: ({ location }) => {
    if (getSession()) return
    const next = location.pathname === '/' ? undefined : location.href
    throw redirect({ to: '/login', search: { next } })
  },
})

/** Any other address: the navigation stays. */
export const unknownRoute = createRoute({ getParentRoute: () => shellRoute, path: '$', component: NotFound })
