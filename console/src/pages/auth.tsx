/** Sign-in and sign-up routes (public) and the account route (signed in). */
import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { text } from '@/lib/search'
import { rootRoute, shellRoute } from '@/routes'

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

const resetRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/reset/$token',
  component: lazyRouteComponent(() => import('./auth/Reset'), 'Reset'),
})

const accountRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/account',
  component: lazyRouteComponent(() => import('./auth/Account'), 'Account'),
})

export const authRoutes = [loginRoute, signupRoute, inviteRoute, resetRoute] as const
export const accountRoutes = [accountRoute] as const
