import { usePersistentState } from '@/lib/usePersistentState'
import { RunOnDataset } from '../evals/RunOnDataset'
import { DEFAULT_SETUP, evalTargets, evaluationProblem, restoreSetup, type Setup } from '../playground/setup'
import type { PromptTarget } from './PromptPicker'

/** Evaluates a version of a prompt with what the playground tried it with: the models, parameters and values. */
export function EvaluatePrompt({ prompt, onClose }: { prompt: PromptTarget; onClose(): void }) {
  const [kept] = usePersistentState<Setup>('playground', DEFAULT_SETUP)
  const setup = restoreSetup(kept)
  const isTried = evaluationProblem({ ...setup, draft: null }) === null && [setup, ...setup.columns].some((one) => one.prompt?.namespace === prompt.namespace && one.prompt.slug === prompt.slug)
  const tried = evalTargets(isTried ? setup : DEFAULT_SETUP).map((target) => ({ ...target, prompt }))
  // Columns that differ only in the prompt are one target.
  const targets = tried.filter((target, at) => tried.findIndex((one) => JSON.stringify(one) === JSON.stringify(target)) === at)
  return <RunOnDataset initial={targets} onClose={onClose} />
}
