import { Plus, Trash2 } from 'lucide-react'
import { useId } from 'react'
import { Button, Field, Input, Select, TextArea } from '@/ui'
import { formatRules, OPERATORS, parseRules, QUERY_FIELDS, type Operator, type Query, type Rule } from './conditions'
import { newCondition, newKey, type ConditionDraft, type Problems, type StrategyDraft, type TargetDraft } from './draft'

interface ConditionsProps {
  /** Path of the strategy, with a trailing dot. */
  path: string
  strategy: StrategyDraft
  targets: readonly TargetDraft[]
  problems: Problems
  onChange(strategy: StrategyDraft): void
}

/** Conditions in order; the first that matches chooses the target. */
export function Conditions({ path, strategy, targets, problems, onChange }: ConditionsProps) {
  const ids = targets.filter((target) => target.id !== '').map((target) => ({ value: target.id, label: target.group || target.provider === '' ? target.id : `${target.id} (${target.provider}/${target.model})` }))
  const choices = [{ value: '', label: 'Choose a target' }, ...ids]
  const set = (conditions: ConditionDraft[]) => onChange({ ...strategy, conditions })
  return (
    <div className="flex flex-col gap-3">
      {problems[`${path}conditions`] && (
        <p role="alert" className="text-xs text-err">
          {problems[`${path}conditions`]}
        </p>
      )}
      <ol className="flex flex-col gap-2">
        {strategy.conditions.map((condition, index) => (
          <ConditionCard
            key={condition.key}
            number={index + 1}
            path={`${path}conditions[${index}]`}
            condition={condition}
            choices={choices}
            problems={problems}
            onChange={(next) => set(strategy.conditions.with(index, next))}
            onRemove={() => set(strategy.conditions.toSpliced(index, 1))}
          />
        ))}
      </ol>
      <div>
        <Button size="sm" icon={<Plus size={13} aria-hidden />} onClick={() => set([...strategy.conditions, newCondition(ids[0]?.value)])}>
          Add condition
        </Button>
      </div>
      <Field label="Default target" hint="Used when no condition matches the request." error={problems[`${path}default`]} className="max-w-md">
        <Select value={strategy.default} onChange={(event) => onChange({ ...strategy, default: event.target.value })} options={choices} />
      </Field>
    </div>
  )
}

interface CardProps {
  number: number
  path: string
  condition: ConditionDraft
  choices: { value: string; label: string }[]
  problems: Problems
  onChange(condition: ConditionDraft): void
  onRemove(): void
}

function ConditionCard({ number, path, condition, choices, problems, onChange, onRemove }: CardProps) {
  const { rules } = condition
  const query = Object.entries(problems).find(([field]) => field.startsWith(`${path}.query`))
  const problem = query && `${query[0].slice(`${path}.query`.length).replace(/^\./, '')} ${query[1]}`.trim()
  const asJson = () => onChange({ ...condition, rules: null, json: JSON.stringify(formatRules(rules ?? []), null, 2) })
  const parsed = rules === null ? parseJson(condition.json) : null
  return (
    <li className="rounded-sm border border-line p-3" aria-label={`Condition ${number}`}>
      <div className="mb-2 flex items-center gap-2">
        <span className="flex-1 text-sm font-medium">{number === 1 ? 'If' : 'Else if'}</span>
        {rules !== null ? (
          <Button size="sm" kind="ghost" onClick={asJson}>
            Edit as JSON
          </Button>
        ) : (
          <Button size="sm" kind="ghost" blocked={parsed === null && 'Rules cannot express this query'} onClick={() => onChange({ ...condition, rules: parsed })}>
            Edit as rules
          </Button>
        )}
        <Button size="sm" kind="ghost" square aria-label={`Remove condition ${number}`} icon={<Trash2 size={14} aria-hidden />} onClick={onRemove} />
      </div>
      {rules !== null ? (
        <>
          <Rules rules={rules} onChange={(next) => onChange({ ...condition, rules: next })} />
          {problem && (
            <p role="alert" className="mt-1 text-xs text-err">
              {problem}
            </p>
          )}
        </>
      ) : (
        <Field label="Query" hint="Fields with a value or operators; $and and $or take lists of queries." error={problem}>
          <TextArea mono rows={4} value={condition.json} onChange={(event) => onChange({ ...condition, json: event.target.value })} />
        </Field>
      )}
      <Field label="then call" error={problems[`${path}.then`]} className="mt-2 max-w-md">
        <Select value={condition.then} onChange={(event) => onChange({ ...condition, then: event.target.value })} options={choices} />
      </Field>
    </li>
  )
}

function Rules({ rules, onChange }: { rules: Rule[]; onChange(rules: Rule[]): void }) {
  const list = useId()
  const set = (index: number, change: Partial<Rule>) => onChange(rules.map((rule, at) => (at === index ? { ...rule, ...change } : rule)))
  return (
    <div className="flex flex-col gap-2">
      {rules.map((rule, index) => (
        <div key={rule.key} className="grid grid-cols-[minmax(0,3fr)_minmax(0,2fr)_minmax(0,3fr)_auto] items-end gap-2 max-sm:grid-cols-2">
          <Field label={`Field of rule ${index + 1}`} quiet>
            <Input mono list={list} value={rule.field} placeholder="metadata.plan" onChange={(event) => set(index, { field: event.target.value })} />
          </Field>
          <Field label={`Operator of rule ${index + 1}`} quiet>
            <Select value={rule.operator} onChange={(event) => set(index, { operator: event.target.value as Operator })} options={Object.entries(OPERATORS).map(([value, label]) => ({ value, label }))} />
          </Field>
          <Field label={`Value of rule ${index + 1}`} quiet>
            <Input mono value={rule.value} placeholder={rule.operator === '$in' || rule.operator === '$nin' ? 'paid, trial' : 'paid'} onChange={(event) => set(index, { value: event.target.value })} />
          </Field>
          <Button size="sm" kind="ghost" square blocked={rules.length === 1 && 'At least one rule is needed'} aria-label={`Remove rule ${index + 1}`} icon={<Trash2 size={14} aria-hidden />} onClick={() => onChange(rules.toSpliced(index, 1))} />
        </div>
      ))}
      <datalist id={list}>
        {QUERY_FIELDS.map((field) => (
          <option key={field} value={field} />
        ))}
      </datalist>
      <div>
        <Button size="sm" kind="ghost" icon={<Plus size={13} aria-hidden />} onClick={() => onChange([...rules, { key: newKey(), field: '', operator: '$eq', value: '' }])}>
          And
        </Button>
      </div>
    </div>
  )
}

function parseJson(json: string): Rule[] | null {
  try {
    return parseRules(JSON.parse(json) as Query, newKey)
  } catch {
    return null
  }
}
