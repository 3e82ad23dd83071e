/** The routes of this area, each with its page in `pages/build/`. */
import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import type { RawSearch } from '@/lib/search'
import { shellRoute } from '@/routes'
import { readPlaygroundSearch, type PlaygroundSearch } from './build/playground/search'
import { readPromptSearch, readPromptsSearch, type PromptSearch, type PromptsSearch } from './build/prompts/search'

const promptsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/prompts',
  validateSearch: (search: RawSearch): PromptsSearch => readPromptsSearch(search),
  component: lazyRouteComponent(() => import('./build/prompts/Prompts'), 'Prompts'),
})
const promptRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/prompts/$namespace/$slug',
  validateSearch: (search: RawSearch): PromptSearch => readPromptSearch(search),
  component: lazyRouteComponent(() => import('./build/prompts/Prompt'), 'PromptPage'),
})
const playgroundRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/playground',
  validateSearch: (search: RawSearch): PlaygroundSearch => readPlaygroundSearch(search),
  component: lazyRouteComponent(() => import('./build/playground/Playground'), 'Playground'),
})

export const buildRoutes = [promptsRoute, promptRoute, playgroundRoute] as const
