/** The two roots that every page hangs from: pages without a session, and pages inside the shell. */
import { createRootRoute, createRoute, lazyRouteComponent, Outlet, redirect, retainSearchParams } from '@tanstack/react-router'
import { getSession } from './api/session'
import { readRange, type RangeSearch } from './lib/range'
import { NotFound } from './shell/NotFound'

export const rootRoute = createRootRoute({ component: Outlet, notFoundComponent: NotFound })

export const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  component: lazyRouteComponent(() => import('./shell/Shell'), 'Shell'),
  notFoundComponent: NotFound,
  validateSearch: (search: Record<string, unknown>): RangeSearch => readRange(search),
  // The time range goes along from page to page.
  search: { middlewares: [retainSearchParams(['range', 'from', 'to'])] },
  beforeLoad: ({ location }) => {
    if (getSession()) return
    const next = location.pathname === '/' ? undefined : location.href
    throw redirect({ to: '/login', search: { next } })
  },
})
