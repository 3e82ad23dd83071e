import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { ago, percent } from '@/lib/format'
import { useNow } from '@/lib/useNow'
import { Badge, Code, Empty, ErrorPanel, PlanGate, SkeletonRows } from '@/ui'
import { Json } from '@/ui/Json'

/** Verdicts of external evaluators on this request. */
export function Verdicts({ logId }: { logId: number }) {
  return (
    <PlanGate needs="integrations" name="External evaluators" about="Evaluators that you run elsewhere can send verdicts on log rows to the gateway. They are shown here, next to the request.">
      <List logId={logId} />
    </PlanGate>
  )
}

function List({ logId }: { logId: number }) {
  const me = useMe()
  const now = useNow(30_000)
  const results = api.useQuery('get', '/api/v1/eval-results', { params: { query: { log_id: logId, limit: 100 } } })
  if (results.isError) return <ErrorPanel error={results.error} what="the verdicts" onRetry={() => void results.refetch()} />
  if (!results.data) return <SkeletonRows rows={3} />
  if (results.data.results.length === 0) {
    return (
      <Empty
        title="No verdict yet"
        more={me.hasRole('member') && <Code label="Send a verdict" code={`curl ${location.origin}/api/v1/eval-results \\\n  -H "X-Gateway-Key: $GATEWAY_KEY" \\\n  -d '{"subject_type": "log", "subject_id": ${logId}, "source": "my-checker", "score": 0.9, "passed": true}'`} />}
      >
        Send one with the API, or evaluate this request with an eval of your own.
      </Empty>
    )
  }
  return (
    <ul className="flex flex-col gap-2">
      {results.data.results.map((result) => (
        <li key={result.id} className="card flex flex-col gap-2 p-3">
          <div className="flex flex-wrap items-center gap-2">
            <Badge tone={result.passed ? 'ok' : 'err'}>{result.passed ? 'passed' : 'failed'}</Badge>
            <span className="tabular-nums">{percent(result.score)}</span>
            <code>{result.source}</code>
            <span className="ml-auto text-xs text-muted">{ago(result.created_at, now)}</span>
          </div>
          {result.external_ref && <p className="font-mono text-xs break-all text-muted">{result.external_ref}</p>}
          {Object.keys(result.details).length > 0 && <Json value={result.details} label={`Details of ${result.source}`} />}
        </li>
      ))}
    </ul>
  )
}
