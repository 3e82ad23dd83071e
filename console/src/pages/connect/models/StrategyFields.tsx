import { Checkbox, Field, Input, Radio, Select } from '@/ui'
import { useId } from 'react'
import { Conditions } from './Conditions'
import { CAUSES, MODES, newCondition, type Mode, type Problems, type StrategyDraft, type TargetDraft } from './draft'

interface StrategyFieldsProps {
  /** Path of what has the strategy: empty, or `targets[0].` for a group. */
  at: string
  strategy: StrategyDraft
  targets: readonly TargetDraft[]
  problems: Problems
  onChange(strategy: StrategyDraft): void
}

/** How targets are chosen, and after which failures the next one is tried. */
export function StrategyFields({ at, strategy, targets, problems, onChange }: StrategyFieldsProps) {
  const path = `${at}strategy.`
  const setMode = (mode: Mode) => {
    const [first, second] = targets
    const needsConditions = mode === 'conditional' && strategy.conditions.length === 0
    onChange({ ...strategy, mode, ...(needsConditions && { conditions: [newCondition(first?.id)], default: second?.id ?? first?.id ?? '' }) })
  }
  return (
    <div className="flex flex-col gap-3">
      <Field label="Strategy" hint={MODES[strategy.mode].about} error={problems[`${path}mode`]} className="max-w-md">
        <Select value={strategy.mode} onChange={(event) => setMode(event.target.value as Mode)} options={Object.entries(MODES).map(([value, { name }]) => ({ value, label: name }))} />
      </Field>
      {strategy.mode === 'conditional' ? <Conditions path={path} strategy={strategy} targets={targets} problems={problems} onChange={onChange} /> : <Causes path={path} strategy={strategy} problems={problems} onChange={onChange} />}
    </div>
  )
}

interface CausesProps extends Pick<StrategyFieldsProps, 'strategy' | 'problems' | 'onChange'> {
  path: string
}

function Causes({ path, strategy, problems, onChange }: CausesProps) {
  const name = useId()
  const { causes } = strategy
  const problem = Object.entries(problems).find(([field]) => field.startsWith(`${path}on`))?.[1]
  const toggle = (cause: string, isOn: boolean) => onChange({ ...strategy, causes: isOn ? [...(causes ?? []), cause] : (causes ?? []).filter((other) => other !== cause) })
  if (strategy.mode === 'single') return null
  return (
    <fieldset className="flex flex-col gap-2">
      <legend className="mb-1 text-sm font-medium">The next target is tried after</legend>
      <Radio name={name} label="the usual failures" hint="Rate limits, server errors, timeouts, broken connections, refused credentials." checked={causes === null} onChange={() => onChange({ ...strategy, causes: null, statuses: '' })} />
      <Radio name={name} label="only these" checked={causes !== null} onChange={() => onChange({ ...strategy, causes: ['429', '5xx', 'timeout', 'connect'] })} />
      {causes !== null && (
        <div className="ml-6 flex flex-col gap-2">
          <div className="flex flex-wrap gap-x-4 gap-y-2">
            {Object.entries(CAUSES).map(([cause, label]) => (
              <Checkbox key={cause} label={label} checked={causes.includes(cause)} onChange={(event) => toggle(cause, event.target.checked)} />
            ))}
          </div>
          <Field label="Other statuses" error={problem} className="max-w-64">
            <Input mono value={strategy.statuses} placeholder="401 404" onChange={(event) => onChange({ ...strategy, statuses: event.target.value })} />
          </Field>
        </div>
      )}
    </fieldset>
  )
}
