import { Link } from '@tanstack/react-router'
import { Pencil, Trash2 } from 'lucide-react'
import type { Schemas } from '@/api/client'
import { Meter } from '@/charts/Bars'
import { projectSpend } from '@/lib/budget'
import { ago, money, percent, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, Status, type Tone } from '@/ui'

interface Props {
  budget: Schemas['Budget']
  name: string
  onEdit: () => void
  onDelete: () => void
}

export function BudgetCard({ budget, name, onEdit, onDelete }: Props) {
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const { spent_usd: spent, soft_limit_usd: soft, hard_limit_usd: hard } = budget
  const limit = hard ?? soft ?? 0
  const share = spent === null ? 0 : limit > 0 ? spent / limit : 1
  const ahead = projectSpend(budget, now)
  const state = stateOf(budget)
  return (
    <li className="card flex min-w-0 flex-col gap-2 p-3" aria-label={`${budget.period} budget of ${name}`}>
      <div className="flex items-center gap-2">
        <h2 className="name min-w-0 truncate text-sm">{name}</h2>
        <Badge>{budget.scope}</Badge>
        <span className="flex-1" />
        <Button kind="ghost" size="sm" square needs="admin" aria-label={`Edit the budget of ${name}`} icon={<Pencil size={14} aria-hidden />} onClick={onEdit} />
        <Button kind="ghost" size="sm" square needs="admin" aria-label={`Delete the budget of ${name}`} icon={<Trash2 size={14} aria-hidden />} onClick={onDelete} />
      </div>
      {spent === null ? (
        <>
          <div className="flex items-baseline gap-2">
            <span className="text-xl font-semibold tabular-nums">{money(limit)}</span>
            <span className="text-muted">per user, {budget.period}</span>
          </div>
          <p className="text-xs text-muted">
            Applies to every user without their own budget. What they spent: <Link to="/usage" search={{ by: 'user' }} className="text-accent underline">usage by user</Link>.
          </p>
        </>
      ) : (
        <>
          <div className="flex items-baseline gap-2">
            <span className="text-xl font-semibold tabular-nums">{money(spent)}</span>
            <span className="text-muted">
              of {money(limit)} {budget.period}
            </span>
            <span className="ml-auto text-muted tabular-nums">{percent(share)}</span>
          </div>
          <Meter share={share} color={`var(--${COLORS[state.tone]})`} mark={hard !== null && soft !== null && hard > 0 ? soft / hard : undefined} />
          <Status tone={state.tone}>{state.text}</Status>
        </>
      )}
      <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-0.5 text-xs">
        <dt className="text-muted">Soft limit</dt>
        <dd className="tabular-nums">{money(soft)}</dd>
        <dt className="text-muted">Hard limit</dt>
        <dd className="tabular-nums">{money(hard)}</dd>
        <dt className="text-muted">Resets</dt>
        <dd>
          <time title={time(budget.resets_at, zone, 'full')}>
            {ago(budget.resets_at, now)}, {time(budget.resets_at, zone)}
          </time>
        </dd>
        {spent !== null && (
          <>
            <dt className="text-muted">Forecast</dt>
            <dd className={ahead !== null && ahead > limit ? 'text-warn' : undefined}>{ahead === null ? 'too early to tell' : `${money(ahead)} by ${time(budget.resets_at, zone, 'day')}`}</dd>
          </>
        )}
      </dl>
    </li>
  )
}

const COLORS: Record<Tone, string> = { ok: 'ok', warn: 'warn', err: 'err', accent: 'accent', muted: 'muted' }

function stateOf({ spent_usd: spent, soft_limit_usd: soft, hard_limit_usd: hard }: Schemas['Budget']): { tone: Tone; text: string } {
  if (spent === null) return { tone: 'muted', text: 'per user' }
  if (hard !== null && spent >= hard) return { tone: 'err', text: 'limit reached: requests are blocked' }
  if (soft !== null && spent >= soft) return { tone: 'warn', text: 'soft limit reached' }
  return { tone: 'ok', text: 'within limits' }
}
