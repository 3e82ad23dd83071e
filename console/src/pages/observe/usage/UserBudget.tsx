import { Pencil, Plus } from 'lucide-react'
import type { Schemas } from '@/api/client'
import { EVERY_USER, budgetsOfUser } from '@/lib/budget'
import { money } from '@/lib/format'
import { BudgetForm } from '@/pages/org/budgets/BudgetForm'
import { useScopeNames } from '@/pages/org/budgets/useScopeNames'
import { Button } from '@/ui'

type Budget = Schemas['Budget']

const PER: Record<Schemas['Period'], string> = { daily: 'day', weekly: 'week', monthly: 'month' }

interface UserBudgetProps {
  user: string
  budgets: readonly Budget[]
  onSet(): void
}

/** The budget that holds for a user, in the table of usage by user. */
export function UserBudget({ user, budgets, onSet }: UserBudgetProps) {
  const held = budgetsOfUser(budgets, user)
  const own = held.some((budget) => budget.scope_id !== EVERY_USER)
  const limits = held.map((budget) => `${money(budget.hard_limit_usd ?? budget.soft_limit_usd)} a ${PER[budget.period]}`).join(', ')
  return (
    <span className="flex items-center justify-end gap-1">
      {held.length === 0 ? <span className="text-muted">none</span> : <span className={own ? undefined : 'text-muted'} title={own ? 'Its own budget' : 'The budget for each user'}>{limits}</span>}
      <Button
        kind="ghost"
        size="sm"
        square
        needs="admin"
        aria-label={`${own ? 'Edit' : 'Set'} the budget of ${user}`}
        icon={own ? <Pencil size={14} aria-hidden /> : <Plus size={14} aria-hidden />}
        onClick={onSet}
      />
    </span>
  )
}

/** The form for the budget of a user: its first own one, or a new one. */
export function UserBudgetForm({ user, budgets, onClose }: { user: string; budgets: readonly Budget[]; onClose(): void }) {
  const names = useScopeNames()
  const own = budgetsOfUser(budgets, user).find((budget) => budget.scope_id !== EVERY_USER) ?? null
  return <BudgetForm budget={own} user={user} names={names} onClose={onClose} />
}
