/** Routes of this area; the pages are in `pages/build/`. */
import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import type { RawSearch } from '@/lib/search'
import { shellRoute } from '@/routes'
import { readDatasetSearch, readDatasetsSearch, type DatasetSearch, type DatasetsSearch } from './build/datasets/search'
import { readEvalsSearch, readExperimentSearch, readRunSearch, type EvalsSearch, type ExperimentSearch, type RunSearch } from './build/evals/search'
import { readPlaygroundSearch, type PlaygroundSearch } from './build/playground/search'
import { readNewReplaySearch, readReplaySearch, type NewReplaySearch, type ReplaySearch } from './build/replays/search'
import { readShelfSearch, readSkillSearch, readSkillsSearch, type ShelfSearch, type SkillSearch, type SkillsSearch } from './build/skills/search'
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
const datasetsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/datasets',
  validateSearch: (search: RawSearch): DatasetsSearch => readDatasetsSearch(search),
  component: lazyRouteComponent(() => import('./build/datasets/Datasets'), 'Datasets'),
})
const datasetRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/datasets/$datasetId',
  validateSearch: (search: RawSearch): DatasetSearch => readDatasetSearch(search),
  component: lazyRouteComponent(() => import('./build/datasets/Dataset'), 'DatasetPage'),
})
const evalsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/evals',
  validateSearch: (search: RawSearch): EvalsSearch => readEvalsSearch(search),
  component: lazyRouteComponent(() => import('./build/evals/Evals'), 'Evals'),
})
const evalRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/evals/$evalId',
  component: lazyRouteComponent(() => import('./build/evals/Eval'), 'EvalPage'),
})
const experimentRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/evals/experiment',
  validateSearch: (search: RawSearch): ExperimentSearch => readExperimentSearch(search),
  component: lazyRouteComponent(() => import('./build/evals/Experiment'), 'Experiment'),
})
const runRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/evals/runs/$runId',
  validateSearch: (search: RawSearch): RunSearch => readRunSearch(search),
  component: lazyRouteComponent(() => import('./build/evals/Run'), 'RunPage'),
})
const replaysRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/replays',
  component: lazyRouteComponent(() => import('./build/replays/Replays'), 'Replays'),
})
const newReplayRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/replays/new',
  validateSearch: (search: RawSearch): NewReplaySearch => readNewReplaySearch(search),
  component: lazyRouteComponent(() => import('./build/replays/NewReplay'), 'NewReplay'),
})
const replayRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/replays/$replayId',
  validateSearch: (search: RawSearch): ReplaySearch => readReplaySearch(search),
  component: lazyRouteComponent(() => import('./build/replays/Replay'), 'ReplayPage'),
})
const skillsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/skills',
  validateSearch: (search: RawSearch): SkillsSearch => readSkillsSearch(search),
  component: lazyRouteComponent(() => import('./build/skills/Skills'), 'Skills'),
})
const rubricRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/skills/rubric',
  component: lazyRouteComponent(() => import('./build/skills/Rubric'), 'Rubric'),
})
const installRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/skills/install',
  component: lazyRouteComponent(() => import('./build/skills/Install'), 'Install'),
})
const skillRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/skills/$skillId',
  validateSearch: (search: RawSearch): SkillSearch => readSkillSearch(search),
  component: lazyRouteComponent(() => import('./build/skills/Skill'), 'SkillPage'),
})
const shelfRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/shelf',
  validateSearch: (search: RawSearch): ShelfSearch => readShelfSearch(search),
  component: lazyRouteComponent(() => import('./build/skills/Shelf'), 'Shelf'),
})

export const buildRoutes = [promptsRoute, promptRoute, playgroundRoute, datasetsRoute, datasetRoute, evalsRoute, evalRoute, experimentRoute, runRoute, replaysRoute, newReplayRoute, replayRoute, skillsRoute, rubricRoute, installRoute, skillRoute, shelfRoute] as const
