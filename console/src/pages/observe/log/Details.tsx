import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { api } from '@/api/client'
import { NO_VALUE, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { CopyButton } from '@/ui'
import { Json } from '@/ui/Json'
import type { LogDetail } from './copyAs'

/** Remaining metadata of a request. */
export function Details({ log }: { log: LogDetail }) {
  const { zone } = usePrefs()
  const keys = api.useQuery('get', '/api/v1/keys', { params: { query: { limit: 200 } } }, { staleTime: 60_000 })
  const key = keys.data?.keys.find((one) => one.id === log.key_id)
  const facts: [string, ReactNode, string?][] = [
    ['Log id', log.id, String(log.id)],
    ['Request id', log.request_id, log.request_id],
    ['Time', time(log.created_at, zone, 'full')],
    ['Call', `${log.method} ${log.path}`],
    ['Source', log.source],
    ...(log.compat ? [['Client of', log.compat] as [string, ReactNode]] : []),
    ['Level', log.level],
    ['Error', log.error_code],
    ['Key', log.key_id && (key ? `${key.name} (${key.key_prefix}…)` : log.key_id), log.key_id ?? undefined],
    ['Application', log.app_id, log.app_id ?? undefined],
    ['Team', log.team_id, log.team_id ?? undefined],
    ['User', log.user && <Filter search={{ user: log.user }}>{log.user}</Filter>, log.user ?? undefined],
    ['Session', log.session_id && <Session id={log.session_id} />, log.session_id ?? undefined],
    ['Prompt', log.prompt && `${log.prompt}${log.prompt_version === null ? '' : `@${log.prompt_version}`}`],
    ['Bodies kept', `request ${log.request_stored}, answer ${log.response_stored}`],
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

const Filter = ({ search, children }: { search: { user: string }; children: ReactNode }) => (
  <Link to="/logs" search={search} className="text-accent underline">
    {children}
  </Link>
)

const Session = ({ id }: { id: string }) => (
  <Link to="/sessions/$sessionId" params={{ sessionId: id }} className="text-accent underline">
    {id}
  </Link>
)
