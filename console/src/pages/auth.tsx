/** Pages that need no session. */
import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { text } from '@/lib/search'
import { rootRoute } from '@/routes'

const loginRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/login',
  validateSearch: (search: Record<string, unknown>): { next?: string } => ({ next: text(search['next']) }),
  component: lazyRouteComponent(() => import('./auth/Login'), 'Login'),
})
const signupRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/signup',
  component: lazyRouteComponent(() => import('./auth/Signup'), 'Signup'),
})
const inviteRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/invite/$token',
  component: lazyRouteComponent(() => import('./auth/Invite'), 'Invite'),
})

export const authRoutes = [loginRoute, signupRoute, inviteRoute] as const
