import { ArrowDown, ArrowUp, FolderTree, Plus, Trash2 } from 'lucide-react'
import { useId, type ReactNode } from 'react'
import { api } from '@/api/client'
import { money } from '@/lib/format'
import { Button, Field, Input, Select, TextArea } from '@/ui'
import { StrategyFields } from './StrategyFields'
import { MAX_TARGETS, newGroup, newTarget, withIds, type Mode, type Problems, type StrategyDraft, type TargetDraft } from './draft'

interface TargetListProps {
  /** Path of what has the targets: empty, or `targets[0].` for a group. */
  at: string
  mode: Mode
  targets: TargetDraft[]
  problems: Problems
  onChange(targets: TargetDraft[]): void
}

/** Targets of a model or of a group. Groups have no groups. */
export function TargetList({ at, mode, targets, problems, onChange }: TargetListProps) {
  const isNested = at !== ''
  const add = (target: TargetDraft) => onChange(mode === 'conditional' ? withIds([...targets, target]) : [...targets, target])
  const isFull = targets.length >= MAX_TARGETS && `At most ${MAX_TARGETS} targets`
  const move = (index: number, step: 1 | -1) => {
    const [target, other] = [targets[index], targets[index + step]]
    if (target && other) onChange(targets.with(index, other).with(index + step, target))
  }
  return (
    <div className="flex flex-col gap-2">
      {problems[`${at}targets`] && (
        <p role="alert" className="rounded-sm bg-err-soft px-3 py-2 text-err">
          {problems[`${at}targets`]}
        </p>
      )}
      <ol className="flex flex-col gap-2">
        {targets.map((target, index) => (
          <TargetCard
            key={target.key}
            name={isNested ? `${placeOf(at)}.${index + 1}` : String(index + 1)}
            at={`${at}targets[${index}].`}
            mode={mode}
            target={target}
            problems={problems}
            onChange={(next) => onChange(targets.with(index, next))}
            actions={(name) => (
              <>
                <Button size="sm" kind="ghost" square blocked={index === 0 && 'It is the first'} aria-label={`Move ${name} up`} icon={<ArrowUp size={14} aria-hidden />} onClick={() => move(index, -1)} />
                <Button size="sm" kind="ghost" square blocked={index === targets.length - 1 && 'It is the last'} aria-label={`Move ${name} down`} icon={<ArrowDown size={14} aria-hidden />} onClick={() => move(index, 1)} />
                <Button size="sm" kind="ghost" square blocked={targets.length === 1 && 'At least one target is needed'} aria-label={`Remove ${name}`} icon={<Trash2 size={14} aria-hidden />} onClick={() => onChange(targets.toSpliced(index, 1))} />
              </>
            )}
          />
        ))}
      </ol>
      <div className="flex flex-wrap gap-2">
        <Button size="sm" icon={<Plus size={13} aria-hidden />} blocked={isFull} onClick={() => add(newTarget())}>
          {isNested ? 'Add target to the group' : 'Add target'}
        </Button>
        {!isNested && (
          <Button size="sm" icon={<FolderTree size={13} aria-hidden />} blocked={isFull} onClick={() => add(newGroup())}>
            Add group
          </Button>
        )}
      </div>
    </div>
  )
}

/** `2` for `targets[1].`. */
function placeOf(at: string): number {
  return Number(/\d+/.exec(at)?.[0] ?? 0) + 1
}

interface TargetCardProps {
  name: string
  /** Path of the target, with a trailing dot. */
  at: string
  mode: Mode
  target: TargetDraft
  problems: Problems
  onChange(target: TargetDraft): void
  actions(name: string): ReactNode
}

function TargetCard({ name, at, mode, target, problems, onChange, actions }: TargetCardProps) {
  const kind = target.group ? 'group' : 'target'
  const set = (change: Partial<TargetDraft>) => onChange({ ...target, ...change })
  const own = problems[at.slice(0, -1)]
  return (
    <li className="rounded-sm border border-line p-3" aria-label={`${target.group ? 'Group' : 'Target'} ${name}`}>
      <div className="mb-2 flex items-center gap-1">
        <h3 className="flex-1 text-sm">
          {target.group ? 'Group' : 'Target'} {name}
        </h3>
        {actions(`${kind} ${name}`)}
      </div>
      {own && (
        <p role="alert" className="mb-2 text-xs text-err">
          {own}
        </p>
      )}
      <div className="flex flex-col gap-3">
        {!target.group && <ProviderModel at={at} target={target} problems={problems} set={set} />}
        <div className="grid gap-3 sm:grid-cols-3">
          {mode === 'weighted' && (
            <Field label="Weight" hint="A target with weight 0 is used only after the others failed." error={problems[`${at}weight`]}>
              <Input inputMode="numeric" value={target.weight} placeholder="1" onChange={(event) => set({ weight: event.target.value })} />
            </Field>
          )}
          {(mode === 'conditional' || problems[`${at}id`]) && (
            <Field label="Id" hint="The name that conditions use for it." error={problems[`${at}id`]}>
              <Input mono value={target.id} onChange={(event) => set({ id: event.target.value })} />
            </Field>
          )}
          {(mode !== 'conditional' || target.when !== '') && (
            <Field label="Used" error={problems[`${at}when`]}>
              <Select
                value={target.when}
                onChange={(event) => set({ when: event.target.value as TargetDraft['when'] })}
                options={[
                  { value: '', label: 'by the strategy' },
                  { value: 'context', label: 'only if the input is too long' },
                  { value: 'content_filter', label: 'only if a content filter refuses' },
                ]}
              />
            </Field>
          )}
        </div>
        {target.group ? (
          <Group at={at} strategy={target.group.strategy} targets={target.group.targets} problems={problems} onChange={(group) => set({ group })} />
        ) : (
          <More at={at} target={target} problems={problems} set={set} />
        )}
      </div>
    </li>
  )
}

interface PartProps {
  at: string
  target: TargetDraft
  problems: Problems
  set(change: Partial<TargetDraft>): void
}

function ProviderModel({ at, target, problems, set }: PartProps) {
  const list = useId()
  const providers = api.useQuery('get', '/api/v1/playground/providers', {}, { staleTime: 60_000 })
  const known = (providers.data?.providers ?? []).toSorted((a, b) => Number(b.configured) - Number(a.configured) || a.name.localeCompare(b.name))
  const chosen = known.find((provider) => provider.name === target.provider)
  const model = chosen?.models.find((one) => one.id === target.model)
  const isUnknown = target.provider !== '' && !chosen
  return (
    <div className="grid gap-3 sm:grid-cols-[minmax(0,2fr)_minmax(0,3fr)]">
      <Field label="Provider" error={problems[`${at}provider`]}>
        <Select
          value={target.provider}
          onChange={(event) => set({ provider: event.target.value })}
          options={[
            ...(target.provider === '' ? [{ value: '', label: 'Choose a provider' }] : []),
            ...(isUnknown ? [{ value: target.provider, label: target.provider }] : []),
            ...known.map(({ name, configured }) => ({ value: name, label: configured ? name : `${name} (no credential)` })),
          ]}
        />
      </Field>
      <Field label="Model" hint={model?.input_per_mtok == null ? undefined : `${money(model.input_per_mtok)} in, ${money(model.output_per_mtok)} out per million tokens`} error={problems[`${at}model`]}>
        <Input mono list={list} value={target.model} onChange={(event) => set({ model: event.target.value })} />
      </Field>
      <datalist id={list}>
        {chosen?.models.map((one) => (
          <option key={one.id} value={one.id} />
        ))}
      </datalist>
    </div>
  )
}

function More({ at, target, problems, set }: PartProps) {
  const fields = ['params', 'defaults', 'timeout_ms', 'retries'] as const
  const isUsed = fields.some((field) => target[field] !== '')
  // Errors name the field, or a field within it: `targets[0].params.model`.
  const problem = (field: (typeof fields)[number]) => Object.entries(problems).find(([path]) => path === at + field || path.startsWith(`${at}${field}.`))?.[1]
  return (
    <details open={isUsed || fields.some((field) => problem(field) !== undefined)}>
      <summary className="text-xs text-muted">Parameters and limits of this target</summary>
      <div className="mt-2 grid gap-3 sm:grid-cols-2">
        <Field label="Parameters" hint="JSON. Always set in the request body." error={problem('params')}>
          <TextArea mono rows={2} value={target.params} placeholder='{"temperature": 0}' onChange={(event) => set({ params: event.target.value })} />
        </Field>
        <Field label="Defaults" hint="JSON. Set in the request body unless the caller sets them." error={problem('defaults')}>
          <TextArea mono rows={2} value={target.defaults} placeholder='{"max_tokens": 1024}' onChange={(event) => set({ defaults: event.target.value })} />
        </Field>
        <Field label="Timeout, ms" error={problem('timeout_ms')}>
          <Input inputMode="numeric" value={target.timeout_ms} placeholder="from the model" onChange={(event) => set({ timeout_ms: event.target.value })} />
        </Field>
        <Field label="Retries" error={problem('retries')}>
          <Input inputMode="numeric" value={target.retries} placeholder="from the model" onChange={(event) => set({ retries: event.target.value })} />
        </Field>
      </div>
    </details>
  )
}

interface GroupProps {
  at: string
  strategy: StrategyDraft
  targets: TargetDraft[]
  problems: Problems
  onChange(group: { strategy: StrategyDraft; targets: TargetDraft[] }): void
}

function Group({ at, strategy, targets, problems, onChange }: GroupProps) {
  const setStrategy = (next: StrategyDraft) => onChange(withStrategy(next, strategy, targets))
  return (
    <div className="flex flex-col gap-3 border-l-2 border-line pl-3">
      <StrategyFields at={at} strategy={strategy} targets={targets} problems={problems} onChange={setStrategy} />
      <TargetList at={at} mode={strategy.mode} targets={targets} problems={problems} onChange={(next) => onChange({ strategy: withRenamedIds(strategy, targets, next), targets: next })} />
    </div>
  )
}

/** Applies a strategy. Targets of a conditional one get ids for its conditions. */
export function withStrategy(next: StrategyDraft, before: StrategyDraft, targets: TargetDraft[]): { strategy: StrategyDraft; targets: TargetDraft[] } {
  if (next.mode !== 'conditional' || before.mode === 'conditional') return { strategy: next, targets }
  const named = withIds(targets)
  const [first, second] = named
  const conditions = next.conditions.map((condition) => (condition.then === '' ? { ...condition, then: first?.id ?? '' } : condition))
  return { strategy: { ...next, conditions, default: next.default || (second?.id ?? first?.id ?? '') }, targets: named }
}

/** Conditions follow a target whose id was edited. */
export function withRenamedIds(strategy: StrategyDraft, before: readonly TargetDraft[], after: readonly TargetDraft[]): StrategyDraft {
  const renamed = new Map(after.flatMap((target) => before.filter((old) => old.key === target.key && old.id !== target.id && old.id !== '').map((old) => [old.id, target.id] as const)))
  if (renamed.size === 0) return strategy
  const follow = (id: string) => renamed.get(id) ?? id
  return { ...strategy, default: follow(strategy.default), conditions: strategy.conditions.map((condition) => ({ ...condition, then: follow(condition.then) })) }
}
