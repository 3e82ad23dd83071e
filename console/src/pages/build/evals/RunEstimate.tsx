import { api, type Schemas } from '@/api/client'
import { compact, integer, money, plural } from '@/lib/format'
import { useSettled } from '@/lib/useSettled'
import { ErrorLine } from '@/ui'

/** What the runs are expected to cost, before they start. */
export function RunEstimate({ datasetId, request }: { datasetId: string; request: Schemas['DatasetEvalEstimateRequest'] }) {
  const text = useSettled(JSON.stringify(request))
  const query = api.useQuery('post', '/api/v1/datasets/{datasetId}/eval/estimate', { params: { path: { datasetId } }, body: JSON.parse(text) as Schemas['DatasetEvalEstimateRequest'] }, { staleTime: 30_000, retry: false, placeholderData: (before) => before })
  if (query.isError) return <ErrorLine error={query.error} />
  const estimate = query.data
  if (!estimate) return <p className="text-muted" role="status">Estimating…</p>
  const { cases, calls, runs, judge_calls: judges, cost_usd: cost, targets } = estimate
  const unpriced = targets.filter((target) => target.cost_usd === null)
  return (
    <div className="card px-3 py-2" role="status" aria-label="Estimate" aria-busy={query.isFetching}>
      <p>
        <span className="font-medium">{calls === 0 ? 'No model is called to answer' : cost === null ? 'Cost unknown' : `About ${money(cost)}`}</span>{' '}
        <span className="text-muted tabular-nums">
          for {plural(runs, 'run')} over {plural(cases, 'case')}
          {calls > 0 && `: ${plural(calls, 'call')}, ${compact(targets.reduce((sum, one) => sum + one.input_tokens, 0))} tokens in, ${compact(targets.reduce((sum, one) => sum + one.output_tokens, 0))} out`}
        </span>
      </p>
      {targets.length > 1 && (
        <ul className="mt-1 text-xs text-muted tabular-nums">
          {targets.map((target, at) => (
            <li key={at}>
              <code>{target.model}</code>: {target.cost_usd === null ? 'no price' : money(target.cost_usd)}
            </li>
          ))}
        </ul>
      )}
      <p className="mt-1 text-xs text-muted">
        {calls > 0 && 'Inputs are measured at four characters per token. '}
        {unpriced.length > 0 && cost !== null && `${unpriced.map((one) => one.model).join(', ')} without a price: not included. `}
        {judges > 0 && `${integer(judges)} calls of judge models: not included.`}
      </p>
    </div>
  )
}
