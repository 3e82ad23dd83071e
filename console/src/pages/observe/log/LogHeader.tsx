import { compact, duration, money, NO_VALUE, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Badge, HttpStatus } from '@/ui'
import type { LogDetail } from './copyAs'

/** Header of the log drawer: status, provider and key metrics. */
export function LogHeader({ log }: { log: LogDetail }) {
  const { zone } = usePrefs()
  const asked = requestedTarget(log)
  const served = targetName(log.provider, log.model)
  return (
    <div className="flex flex-col gap-1.5 py-0.5">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <HttpStatus status={log.status} code={log.error_code} />
        <span className="min-w-0 font-mono text-xs break-all">
          {asked !== served && <span className="text-muted">{asked} → </span>}
          {served}
        </span>
        {log.cache && <Badge tone={log.cache === 'hit' ? 'accent' : 'muted'}>cache {log.cache.toLowerCase()}</Badge>}
        {log.stream && <Badge>stream</Badge>}
      </div>
      <dl className="flex flex-wrap gap-x-4 gap-y-0.5 text-xs">
        <Figure name="Latency" value={duration(log.latency_ms)} />
        <Figure name="First token" value={duration(log.ttft_ms)} />
        <Figure name="Tokens" value={log.total_tokens === null ? NO_VALUE : `${compact(log.prompt_tokens)} in, ${compact(log.completion_tokens)} out`} />
        <Figure name="Cost" value={log.cost_usd !== null ? money(log.cost_usd) : log.total_tokens === null ? NO_VALUE : 'no price'} />
        <Figure name="At" value={time(log.created_at, zone, 'time')} title={time(log.created_at, zone, 'full')} />
      </dl>
    </div>
  )
}

function Figure({ name, value, title }: { name: string; value: string; title?: string }) {
  return (
    <div className="flex gap-1.5" title={title}>
      <dt className="text-muted">{name}</dt>
      <dd className="tabular-nums">{value}</dd>
    </div>
  )
}

/** The target that the caller requested: the first attempt. */
function requestedTarget(log: LogDetail): string {
  const first = log.attempts[0]
  return first ? targetName(first.provider, first.model) : targetName(log.provider, log.model)
}

function targetName(provider: string, model: string | null): string {
  return model ? `${provider}/${model}` : provider
}
