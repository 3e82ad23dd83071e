import { Link } from '@tanstack/react-router'
import type { Schemas } from '@/api/client'
import { Meter } from '@/charts/Bars'
import { projectSpend } from '@/lib/budget'
import { ago, money, time } from '@/lib/format'
import { useNow } from '@/lib/useNow'
import { Badge, ErrorPanel, Section, SkeletonRows } from '@/ui'

type Budget = Schemas['Budget']

interface BudgetsProps {
  budgets: readonly Budget[] | undefined
  error: unknown
  onRetry(): void
}

/** Budgets with spend and projection. */
export function Budgets({ budgets, error, onRetry }: BudgetsProps) {
  const now = useNow(60_000)
  if (error) return <ErrorPanel error={error} what="the budgets" onRetry={onRetry} />
  return (
    <Section title="Budgets" flush aside={<Link to="/org/budgets" className="text-xs text-accent underline">Manage</Link>}>
      {!budgets ? (
        <SkeletonRows rows={2} />
      ) : budgets.length === 0 ? (
        <p className="px-3 pt-1 pb-4 text-muted">No budgets yet: spend is not limited.</p>
      ) : (
        <>
          <p className="px-3 text-xs text-muted">Budgets count requests through the gateway. Spans received over OTLP are part of the usage above but count against no budget.</p>
          <ul className="grid gap-x-6 px-3 pb-2 md:grid-cols-2">
            {budgets.map((budget) => (
              <BudgetLine key={budget.id} budget={budget} now={now} />
            ))}
          </ul>
        </>
      )}
    </Section>
  )
}

function BudgetLine({ budget, now }: { budget: Budget; now: number }) {
  const limit = budget.hard_limit_usd ?? budget.soft_limit_usd ?? 0
  const end = projectSpend(budget, now)
  const spent = budget.spent_usd ?? 0
  const over = limit > 0 && spent >= limit
  const heading = limit > 0 && end !== null && end > limit
  return (
    <li className="min-w-0 py-2">
      <div className="flex flex-wrap items-baseline gap-2">
        <span className="min-w-0 font-medium break-words">
          {budget.scope === 'org' ? 'Organization' : budget.scope === 'user' ? `User ${budget.scope_id}` : budget.scope}, {budget.period}
        </span>
        {over ? <Badge tone="err">reached</Badge> : heading && <Badge tone="warn">forecast over limit</Badge>}
        <span className="ml-auto tabular-nums">
          {money(spent)} of {money(limit)}
        </span>
      </div>
      <Meter share={limit === 0 ? 0 : spent / limit} color={over ? 'var(--err)' : heading ? 'var(--warn)' : 'var(--series-1)'} {...(budget.soft_limit_usd !== null && limit > 0 && { mark: budget.soft_limit_usd / limit })} />
      <p className="mt-1 text-xs text-muted">
        {end === null ? 'No forecast yet' : `Forecast: ${money(end)} by ${time(budget.resets_at, 'utc', 'day')}`}, resets {ago(budget.resets_at, now)}
      </p>
    </li>
  )
}
