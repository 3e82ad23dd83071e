import type { Schemas } from '@/api/client'
import { compact, integer, moneyColumn, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { relativeChange } from '@/lib/replays'
import { ChangeText } from '../shared/ChangeText'

interface EstimateCardProps {
  estimate: Schemas['ReplayEstimate'] | undefined
  busy: boolean
  /** Why there is no estimate. */
  hint: string | null
}

/** What the replay would have and cost. */
export function EstimateCard({ estimate, busy, hint }: EstimateCardProps) {
  const { zone } = usePrefs()
  if (!estimate) {
    return (
      <p className="text-muted" role="status">
        {hint ?? (busy ? 'Looking for requests…' : 'No estimate')}
      </p>
    )
  }
  const { rows, skipped, cost_before_usd: before, cost_usd: after, unpriced, judge_calls: judges, input_tokens: input, output_tokens: output } = estimate
  const cost = moneyColumn([before, after])
  return (
    <div role="status" aria-busy={busy}>
      <dl className="grid grid-cols-[1fr_auto] gap-x-3 gap-y-1 tabular-nums">
        <dt className="text-muted">Requests</dt>
        <dd className="text-right font-medium">{integer(rows)}</dd>
        <dt className="text-muted">Tokens</dt>
        <dd className="text-right">
          {compact(input)} in, {compact(output)} out
        </dd>
        <dt className="text-muted">Original cost</dt>
        <dd className="text-right">{cost(before)}</dd>
        <dt className="text-muted">Expected cost</dt>
        <dd className="text-right font-medium">{after === null ? 'no price' : cost(after)}</dd>
        {after !== null && unpriced === 0 && before > 0 && (
          <>
            <dt className="text-muted">Change</dt>
            <dd className="text-right">
              <ChangeText change={relativeChange(before, after, 'less')} />
            </dd>
          </>
        )}
      </dl>
      <ul className="mt-2 flex list-disc flex-col gap-0.5 pl-4 text-xs text-muted">
        <li>Assumes as many tokens as before, at the price of the new model.</li>
        {unpriced > 0 && after !== null && <li>{plural(unpriced, 'request')} without a price: not included.</li>}
        {judges > 0 && <li>{plural(judges, 'call')} of judge models: not included.</li>}
        {skipped > 0 && <li>{plural(skipped, 'matching row')} cannot be replayed: no chat, or a body that was not stored whole.</li>}
        {estimate.partial && <li>Only requests since {time(estimate.scanned_to, zone)} were looked at.</li>}
      </ul>
    </div>
  )
}
