/** Routes of this area; the pages are in `pages/connect/`. */
import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { oneOf, text, type RawSearch } from '@/lib/search'
import { shellRoute } from '@/routes'
import { readMcpServerSearch, type McpServerSearch } from './connect/mcp/search'
import { readModelSearch, readModelsSearch, type ModelSearch, type ModelsSearch } from './connect/models/search'

const keysRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/keys',
  component: lazyRouteComponent(() => import('./connect/keys/Keys'), 'Keys'),
  validateSearch: (search: RawSearch): { q?: string; state?: 'ended' | 'all' } => ({ q: text(search['q']), state: oneOf(search['state'], ['ended', 'all']) }),
})
const providersRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/providers',
  component: lazyRouteComponent(() => import('./connect/providers/Providers'), 'Providers'),
  validateSearch: (search: RawSearch): { q?: string } => ({ q: text(search['q']) }),
})
const modelsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/models',
  component: lazyRouteComponent(() => import('./connect/models/Models'), 'Models'),
  validateSearch: (search: RawSearch): ModelsSearch => readModelsSearch(search),
})
const newModelRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/models/new',
  component: lazyRouteComponent(() => import('./connect/models/NewModel'), 'NewModel'),
})
const modelRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/models/$modelId',
  component: lazyRouteComponent(() => import('./connect/models/ModelPage'), 'ModelPage'),
  validateSearch: (search: RawSearch): ModelSearch => readModelSearch(search),
})
const mcpServersRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/mcp',
  component: lazyRouteComponent(() => import('./connect/mcp/McpServers'), 'McpServers'),
})
const mcpServerRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/mcp/$server',
  component: lazyRouteComponent(() => import('./connect/mcp/McpServerPage'), 'McpServerPage'),
  validateSearch: (search: RawSearch): McpServerSearch => readMcpServerSearch(search),
})
const importRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/import',
  component: lazyRouteComponent(() => import('./connect/import/Import'), 'Import'),
})
const webhooksRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/webhooks',
  component: lazyRouteComponent(() => import('./connect/webhooks/Webhooks'), 'Webhooks'),
})

export interface DeliverySearch {
  status?: 'pending' | 'delivered' | 'failed'
  type?: string
  /** Id of the item in the drawer. */
  delivery?: string
}

const webhookRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/webhooks/$webhookId',
  component: lazyRouteComponent(() => import('./connect/webhooks/WebhookDetail'), 'WebhookDetail'),
  validateSearch: (search: RawSearch): DeliverySearch => ({
    status: oneOf(search['status'], ['pending', 'delivered', 'failed']),
    type: text(search['type']),
    delivery: text(search['delivery']),
  }),
})
const exportsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/exports',
  component: lazyRouteComponent(() => import('./connect/exports/Exports'), 'Exports'),
})

export const connectRoutes = [keysRoute, providersRoute, modelsRoute, newModelRoute, modelRoute, mcpServersRoute, mcpServerRoute, importRoute, webhooksRoute, webhookRoute, exportsRoute] as const
