import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { EVERY_USER } from '@/lib/budget'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, Select, toast } from '@/ui'
import type { ScopeNames } from './useScopeNames'

const SCOPES: { value: Schemas['BudgetScope']; label: string }[] = [
  { value: 'org', label: 'The organization' },
  { value: 'team', label: 'A team' },
  { value: 'app', label: 'An application' },
  { value: 'key', label: 'A key' },
  { value: 'user', label: 'End users' },
]
const UNPRICED: { value: Schemas['UnpricedCalls']; label: string }[] = [
  { value: 'allow', label: 'Allow, count nothing' },
  { value: 'refuse', label: 'Refuse' },
  { value: 'flat', label: 'Count a flat amount' },
]
const PERIODS: Schemas['Period'][] = ['daily', 'weekly', 'monthly']

interface Props {
  budget: Schemas['Budget'] | null
  names: ScopeNames
  /** The user that a new budget is for. */
  user?: string
  onClose: () => void
}

export function BudgetForm({ budget, names, user, onClose }: Props) {
  const { orgId } = useMe()
  const [scope, setScope] = useState<Schemas['BudgetScope']>(budget?.scope ?? (user === undefined ? 'org' : 'user'))
  const [scopeId, setScopeId] = useState(budget?.scope === 'user' ? '' : (budget?.scope_id ?? ''))
  const [userName, setUserName] = useState(budget?.scope === 'user' && budget.scope_id !== EVERY_USER ? budget.scope_id : (user ?? ''))
  const [period, setPeriod] = useState<Schemas['Period']>(budget?.period ?? 'monthly')
  const [soft, setSoft] = useState(budget?.soft_limit_usd?.toString() ?? '')
  const [hard, setHard] = useState(budget?.hard_limit_usd?.toString() ?? '')
  const [unpriced, setUnpriced] = useState<Schemas['UnpricedCalls']>(budget?.unpriced ?? 'allow')
  const [flat, setFlat] = useState(budget?.unpriced_flat_usd?.toString() ?? '')
  const choices = names.choices(scope)
  const chosen = scope === 'user' ? userName.trim() || EVERY_USER : choices.some((choice) => choice.value === scopeId) ? scopeId : (choices[0]?.value ?? '')
  const save = useAction(async () => {
    const body = { scope, scope_id: chosen, period, soft_limit_usd: amount(soft), hard_limit_usd: amount(hard), unpriced, unpriced_flat_usd: unpriced === 'flat' ? amount(flat) : null }
    if (budget) await unwrap(client.PUT('/api/v1/orgs/{orgId}/budgets/{budgetId}', { params: { path: { orgId, budgetId: budget.id } }, body }))
    else await unwrap(client.POST('/api/v1/orgs/{orgId}/budgets', { params: { path: { orgId } }, body }))
    await invalidate('/api/v1/orgs')
    toast(budget ? 'Budget saved' : 'Budget active')
    onClose()
  })
  const problem = scope !== 'user' && choices.length === 0 ? `There is no ${scope} yet` : soft === '' && hard === '' ? 'Set at least one limit' : soft !== '' && hard !== '' && Number(soft) > Number(hard) ? 'The soft limit is above the hard limit' : false
  return (
    <FormDialog
      onClose={onClose}
      title={budget ? 'Edit budget' : 'Set budget'}
      action={save}
      submit={budget ? 'Save budget' : 'Set budget'}
      blocked={problem}
      fields={['scope', 'scope_id', 'period', 'soft_limit_usd', 'hard_limit_usd', 'unpriced', 'unpriced_flat_usd']}
    >
      <div className="grid gap-3 sm:grid-cols-3">
        <Field label="For" error={save.fields['scope']}>
          <Select autoFocus={user === undefined} value={scope} onChange={(event) => setScope(event.target.value as Schemas['BudgetScope'])} options={SCOPES} />
        </Field>
        {scope === 'user' ? (
          <Field label="Which" hint="The value that requests send in X-Gateway-User." error={save.fields['scope_id']}>
            <Input value={userName} maxLength={256} placeholder="each user" onChange={(event) => setUserName(event.target.value)} />
          </Field>
        ) : (
          <Field label="Which" error={save.fields['scope_id']}>
            <Select value={chosen} disabled={scope === 'org'} onChange={(event) => setScopeId(event.target.value)} options={choices} />
          </Field>
        )}
        <Field label="Each" error={save.fields['period']}>
          <Select value={period} onChange={(event) => setPeriod(event.target.value as Schemas['Period'])} options={PERIODS.map((one) => ({ value: one, label: { daily: 'day', weekly: 'week', monthly: 'month' }[one] }))} />
        </Field>
      </div>
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Soft limit, USD" hint="When it is reached, webhooks receive budget.warning." error={save.fields['soft_limit_usd']}>
          <Input type="number" min={0} step="any" value={soft} placeholder="none" onChange={(event) => setSoft(event.target.value)} />
        </Field>
        <Field label="Hard limit, USD" hint="When it is reached, further requests are refused." error={save.fields['hard_limit_usd']}>
          <Input type="number" min={0} step="any" autoFocus={user !== undefined} value={hard} placeholder="none" onChange={(event) => setHard(event.target.value)} />
        </Field>
      </div>
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Calls without a price" hint="Models whose price is not known, and images, audio and batches." error={save.fields['unpriced']}>
          <Select value={unpriced} onChange={(event) => setUnpriced(event.target.value as Schemas['UnpricedCalls'])} options={UNPRICED} />
        </Field>
        {unpriced === 'flat' && (
          <Field label="Count for each, USD" error={save.fields['unpriced_flat_usd']}>
            <Input type="number" required min={0} max={1_000_000} step="any" value={flat} onChange={(event) => setFlat(event.target.value)} />
          </Field>
        )}
      </div>
      {scope === 'user' && (
        <p className="text-xs text-muted">
          {chosen === EVERY_USER ? 'Each user may spend this amount, unless the user has a budget of their own.' : `Replaces the budget for each user, if there is one, for ${chosen}.`}
        </p>
      )}
      {typeof problem === 'string' && (
        <p className="text-xs text-muted" role="status">
          {problem}
        </p>
      )}
    </FormDialog>
  )
}

function amount(text: string): number | null {
  return text === '' ? null : Number(text)
}
