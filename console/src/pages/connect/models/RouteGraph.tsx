import type { ReactNode } from 'react'
import { colorsOf } from '@/charts/colors'
import { percent } from '@/lib/format'
import { describeQuery, formatRules } from './conditions'
import { isPlace, MODES, type ModelDraft, type StrategyDraft, type TargetDraft } from './draft'

/** The route of a model as a small graph: its name, the strategy, and each target with the reason why it is chosen. */
export function RouteGraph({ draft }: { draft: ModelDraft }) {
  // The same colours as in the usage of the targets.
  const names = [...new Set(leaves(draft.targets).map(nameOf))]
  const colors = colorsOf(names)
  const colorFor = (target: TargetDraft) => colors[names.indexOf(nameOf(target))]
  return (
    <div className="overflow-x-auto p-3" role="region" tabIndex={0} aria-label="Route">
      <div className={`flex w-max min-w-full items-center ${STACKED}`}>
        <Node>
          <code className="font-medium">{draft.name || 'name'}</code>
        </Node>
        <Branch strategy={draft.strategy} targets={draft.targets} colorFor={colorFor} />
      </div>
    </div>
  )
}

function leaves(targets: readonly TargetDraft[]): TargetDraft[] {
  return targets.flatMap((target) => (target.group ? leaves(target.group.targets) : [target]))
}

const nameOf = (target: TargetDraft) => `${target.provider}/${target.model}`

interface BranchProps {
  strategy: StrategyDraft
  targets: readonly TargetDraft[]
  colorFor(target: TargetDraft): string | undefined
}

function Branch({ strategy, targets, colorFor }: BranchProps) {
  return (
    <>
      <Line between />
      <span className="rounded-full bg-accent-soft px-2 text-xs leading-5 font-medium whitespace-nowrap text-accent max-sm:ml-3">{MODES[strategy.mode].name.toLowerCase()}</span>
      <Line between />
      <ol className="grid grid-cols-[auto_auto_auto] gap-y-1.5 border-l border-line-strong py-0.5 max-sm:ml-6 max-sm:grid-cols-[auto_auto_minmax(0,1fr)]">
        {targets.map((target, index) => (
          <li key={target.key} className="col-span-3 grid grid-cols-subgrid items-center">
            <Line />
            <span className="px-2 text-xs whitespace-nowrap text-muted">{reasonOf(strategy, targets, index)}</span>
            <span className={`flex items-center ${STACKED}`}>
              <Node color={target.group || target.provider === '' ? undefined : colorFor(target)}>{target.group ? <span className="text-muted">{isPlace(target.id) || target.id === '' ? 'group' : target.id}</span> : <TargetName target={target} />}</Node>
              {target.group && <Branch strategy={target.group.strategy} targets={target.group.targets} colorFor={colorFor} />}
            </span>
          </li>
        ))}
      </ol>
    </>
  )
}

function TargetName({ target }: { target: TargetDraft }) {
  if (target.provider === '') return <span className="text-muted">no provider yet</span>
  return (
    <code>
      {target.provider}/{target.model || '…'}
    </code>
  )
}

/** On a phone what comes next is below instead of beside. */
const STACKED = 'max-sm:w-auto max-sm:min-w-0 max-sm:flex-col max-sm:items-start max-sm:gap-1.5'

const Line = ({ between = false }: { between?: boolean }) => <span className={`h-px w-4 shrink-0 bg-line-strong ${between ? 'max-sm:hidden' : ''}`} aria-hidden />

const Node = ({ children, color }: { children: ReactNode; color?: string | undefined }) => (
  <span className="flex items-center gap-2 rounded-sm border border-line bg-surface px-2 py-1 break-all sm:whitespace-nowrap">
    {color && <span className="size-2 shrink-0 rounded-full" style={{ background: color }} aria-hidden />}
    {children}
  </span>
)

/** When a target is used: `1.`, `70%`, `if user is anna`, `after: input too long`. */
function reasonOf(strategy: StrategyDraft, targets: readonly TargetDraft[], index: number): string {
  const target = targets[index]
  if (!target) return ''
  if (target.when !== '') return target.when === 'context' ? 'if the input is too long' : 'if the content filter refuses'
  const ordinary = targets.filter((other) => other.when === '')
  switch (strategy.mode) {
    case 'weighted': {
      const sum = ordinary.reduce((total, other) => total + weightOf(other), 0)
      return weightOf(target) === 0 ? 'after the others' : percent(weightOf(target) / sum)
    }
    case 'conditional': {
      const conditions = strategy.conditions.filter((condition) => condition.then === target.id && target.id !== '')
      const reasons = [...conditions.map((condition) => `if ${shorten(describeQuery(condition.rules ? formatRules(condition.rules) : parse(condition.json)))}`), ...(strategy.default === target.id && target.id !== '' ? ['else'] : [])]
      return reasons.join(', or ') || 'never'
    }
    case 'order':
      return `${ordinary.indexOf(target) + 1}.`
    default:
      return ''
  }
}

function weightOf(target: TargetDraft): number {
  const weight = target.weight.trim() === '' ? 1 : Number(target.weight)
  return Number.isFinite(weight) && weight > 0 ? weight : 0
}

function parse(json: string): Record<string, unknown> {
  try {
    return JSON.parse(json) as Record<string, unknown>
  } catch {
    return {}
  }
}

function shorten(text: string): string {
  return text.length > 48 ? `${text.slice(0, 47)}…` : text
}
