/** All routes. Each area defines its own list in `pages/<area>.tsx`. */
import { createRouter } from '@tanstack/react-router'
import { parseSearch, stringifySearch } from './lib/search'
import { accountRoutes, authRoutes } from './pages/auth'
import { buildRoutes } from './pages/build'
import { connectRoutes } from './pages/connect'
import { observeRoutes } from './pages/observe'
import { orgRoutes } from './pages/org'
import { rootRoute, shellRoute, unknownRoute } from './routes'
import { ErrorPage } from './shell/ErrorPage'

const tree = rootRoute.addChildren([...authRoutes, shellRoute.addChildren([...accountRoutes, ...observeRoutes, ...buildRoutes, ...connectRoutes, ...orgRoutes, unknownRoute])])

export const router = createRouter({
  routeTree: tree,
  basepath: '/console',
  parseSearch,
  stringifySearch,
  defaultPreload: 'intent',
  defaultErrorComponent: ErrorPage,
  scrollRestoration: true,
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
