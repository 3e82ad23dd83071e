import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { duration, integer, money, NO_VALUE, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { term } from '@/lib/query'
import { CopyButton } from '@/ui'
import { Json } from '@/ui/Json'
import type { LogDetail } from './copyAs'
import { tokensPerSecond } from './speed'

type Fact = [name: string, value: ReactNode, copy?: string]
const LINK = 'text-accent underline'

/** Figures and identity of a request. Names lead to the requests that share them. */
export function Details({ log }: { log: LogDetail }) {
  const { zone } = usePrefs()
  const { orgId } = useMe()
  const params = { path: { orgId }, query: { limit: 200 } }
  const keys = api.useQuery('get', '/api/v1/keys', { params: { query: { limit: 200 } } }, { staleTime: 60_000 })
  const apps = api.useQuery('get', '/api/v1/orgs/{orgId}/apps', { params }, { staleTime: 60_000, enabled: log.app_id !== null })
  const teams = api.useQuery('get', '/api/v1/orgs/{orgId}/teams', { params }, { staleTime: 60_000, enabled: log.team_id !== null })
  const key = keys.data?.keys.find((one) => one.id === log.key_id)
  const app = apps.data?.apps.find((one) => one.id === log.app_id)
  const team = teams.data?.teams.find((one) => one.id === log.team_id)
  const speed = tokensPerSecond(log)
  const facts: Fact[] = [
    ['Time', time(log.created_at, zone, 'full')],
    ['Cost', costText(log)],
    ['Tokens', tokenText(log)],
    ...(speed === null ? [] : [['Speed', `${integer(speed)} output tokens per second after the first`] as Fact]),
    ['Cache', cacheText(log)],
    ...(log.attempts.length > 1 ? [['Attempts', String(log.attempts.length)] as Fact] : []),
    ...(log.tool ? [['Tool', <Rows key="tool" query={term('tool', log.tool)}>{log.tool}</Rows>, log.tool] as Fact] : []),
    ...(log.queued_ms ? [['Waited', `${duration(log.queued_ms)} for limits`] as Fact] : []),
    ['Error', log.error_code && <Rows query={term('error', log.error_code)}>{log.error_code}</Rows>],
    ['Key', log.key_id && <Named to="/keys" query={term('key', log.key_id)} name={key ? `${key.name} (${key.key_prefix}…)` : log.key_id} />, log.key_id ?? undefined],
    ['Application', log.app_id && <Named to="/org/apps" query={term('app', log.app_id)} name={app?.name ?? log.app_id} />, log.app_id ?? undefined],
    ['Team', log.team_id && <Named to="/org/teams" query={term('team', log.team_id)} name={team?.name ?? log.team_id} />, log.team_id ?? undefined],
    ['User', log.user && <Rows query={term('user', log.user)}>{log.user}</Rows>, log.user ?? undefined],
    ['Session', log.session_id && <Link to="/sessions/$sessionId" params={{ sessionId: log.session_id }} className={LINK}>{log.session_id}</Link>, log.session_id ?? undefined],
    ['Prompt', log.prompt && <Rows query={term('prompt', log.prompt)}>{`${log.prompt}${log.prompt_version === null ? '' : `@${log.prompt_version}`}`}</Rows>],
    ['Call', `${log.method} ${log.path}`],
    ['Source', log.source],
    ...(log.compat ? [['Client of', log.compat] as Fact] : []),
    ['Log id', log.id, String(log.id)],
    ['Request id', log.request_id, log.request_id],
    ['Bodies', `request ${log.request_stored}, response ${log.response_stored}`],
  ]
  return (
    <>
      <dl className="card divide-y divide-line">
        {facts.map(([name, value, copy]) => (
          <div key={name} className="flex min-h-8 items-center gap-3 px-3">
            <dt className="w-24 shrink-0 text-xs text-muted">{name}</dt>
            <dd className="flex min-w-0 flex-1 items-center gap-2 font-mono text-xs">
              <span className="min-w-0 flex-1 py-1 break-all">{value ?? NO_VALUE}</span>
              {copy && <CopyButton value={copy} label={`Copy ${name.toLowerCase()}`} />}
            </dd>
          </div>
        ))}
      </dl>
      <section className="flex flex-col gap-1">
        <h3 className="text-xs text-muted">Metadata</h3>
        <Json value={log.metadata} label="Metadata" />
      </section>
    </>
  )
}

function costText(log: LogDetail): string {
  if (log.cost_usd !== null) return `${money(log.cost_usd)}${log.usage_estimated ? ' (estimated)' : ''}`
  return log.total_tokens === null ? NO_VALUE : 'no price for this model'
}

function tokenText(log: LogDetail): string {
  if (log.total_tokens === null) return NO_VALUE
  const cached = log.cached_tokens ? ` (${integer(log.cached_tokens)} cached)` : ''
  const reasoning = log.reasoning_tokens ? ` (${integer(log.reasoning_tokens)} reasoning)` : ''
  return `${integer(log.prompt_tokens)} in${cached}, ${integer(log.completion_tokens)} out${reasoning}, ${plural(log.total_tokens, 'token')} in total`
}

function cacheText(log: LogDetail): string {
  if (log.cache === null) return 'not used'
  return log.cache === 'hit' ? 'hit: answered from the cache, no provider was called' : log.cache.toLowerCase()
}

function Rows({ query, children }: { query: string; children: ReactNode }) {
  return (
    <Link to="/logs" search={{ query }} className={LINK} title="Requests with this value">
      {children}
    </Link>
  )
}

/** A resource: its name leads to its page, and another link to its requests. */
function Named({ to, query, name }: { to: '/keys' | '/org/apps' | '/org/teams'; query: string; name: string }) {
  return (
    <>
      <Link to={to} className={`${LINK} inline-flex min-h-6 items-center`}>
        {name}
      </Link>
      <Link to="/logs" search={{ query }} className={`${LINK} ml-2 inline-flex min-h-6 items-center font-sans`}>
        requests
      </Link>
    </>
  )
}
