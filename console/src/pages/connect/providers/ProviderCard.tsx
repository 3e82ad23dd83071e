import { EllipsisVertical, KeyRound, Pencil, Trash2, Zap } from 'lucide-react'
import { Link } from '@tanstack/react-router'
import { useEffect, useEffectEvent, useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { duration, plural } from '@/lib/format'
import { term } from '@/lib/query'
import { useAction } from '@/lib/useAction'
import { Badge, Button, Menu, MenuItem, Status } from '@/ui'
import type { Health } from './useProviderHealth'

/** A provider that requests can use. */
export interface Offer {
  name: string
  kind: string
  /** True if it has a base URL and, if required, a credential. */
  configured: boolean
  builtIn: boolean
  models: string[]
  /** Models whose circuit breaker is open. */
  openBreakers: string[]
  /** The configuration stored by the organization. */
  stored: Schemas['Provider'] | null
}

export function ProviderCard({ offer, health, testNow, onEdit, onRemove }: { offer: Offer; health: Health | null; testNow: boolean; onEdit: () => void; onRemove: () => void }) {
  const { orgId } = useMe()
  const [result, setResult] = useState<Schemas['ProviderTest'] | null>(null)
  const test = useAction(async () => {
    const params = { path: { orgId, name: offer.name } }
    setResult(await unwrap(client.POST('/api/v1/orgs/{orgId}/providers/{name}/test', { params })))
  })
  const runTest = useEffectEvent(() => test.run())
  useEffect(() => {
    if (testNow) runTest()
  }, [testNow])
  const { stored } = offer
  const isSandbox = offer.kind === 'sandbox'
  return (
    <li className="card flex min-w-0 flex-col gap-2 p-3" aria-label={offer.name}>
      <div className="flex min-w-0 items-center gap-2">
        <h3 className="name min-w-0 flex-1 truncate font-mono text-sm">{offer.name}</h3>
        {!offer.builtIn && <Badge tone="accent">custom</Badge>}
        {stored && (
          <Menu trigger={<Button kind="ghost" size="sm" square aria-label={`Actions for ${offer.name}`} icon={<EllipsisVertical size={16} aria-hidden />} />}>
            <MenuItem needs="admin" icon={<Pencil size={14} aria-hidden />} onSelect={onEdit}>
              Edit…
            </MenuItem>
            <MenuItem needs="admin" danger icon={<Trash2 size={14} aria-hidden />} onSelect={onRemove}>
              Remove…
            </MenuItem>
          </Menu>
        )}
      </div>
      <p className="name min-w-0 truncate text-muted" title={stored?.base_url ?? undefined}>
        {describe(offer)}
      </p>
      <div className="flex flex-wrap items-center gap-2 text-xs text-muted">
        <Status tone={offer.configured ? 'ok' : 'muted'}>{isSandbox ? 'built in, needs no account' : offer.configured ? credentialOf(stored) : 'no credential'}</Status>
        {offer.openBreakers.length > 0 && (
          <Status wrap tone="err" title="They failed repeatedly. Routes with several targets skip them until a trial request succeeds.">
            circuit breaker open: {offer.openBreakers.map((model) => (model === '*' ? 'all models' : model)).join(', ')}
          </Status>
        )}
        {health && (
          <Link to="/logs" search={{ query: term('provider', offer.name), range: '1h' }} className="hover:underline">
            <Status wrap tone={health.tone}>{health.text}</Status>
          </Link>
        )}
      </div>
      <div className="mt-auto flex flex-wrap items-center gap-2 pt-1">
        {!isSandbox && !stored && (
          <Button size="sm" needs="admin" icon={<KeyRound size={13} aria-hidden />} onClick={onEdit}>
            {offer.configured ? 'Use our own credential' : 'Add credential'}
          </Button>
        )}
        <Button size="sm" needs="admin" busy={test.busy} blocked={!offer.configured && 'Add a credential first'} icon={<Zap size={13} aria-hidden />} aria-label={`Test ${offer.name}`} onClick={test.run}>
          Test
        </Button>
        <span className="min-w-0 flex-1 text-xs" role="status">
          {test.error ? <Status wrap tone="err">{test.error.message}</Status> : result && <TestResult result={result} />}
        </span>
      </div>
      {result?.error && <p className="rounded-sm bg-err-soft px-2 py-1 text-xs break-words text-err">{result.error}</p>}
    </li>
  )
}

function TestResult({ result }: { result: Schemas['ProviderTest'] }) {
  return (
    <Status tone={result.ok ? 'ok' : 'err'}>
      {result.ok ? 'works' : 'failed'}
      {result.status !== null && <span className="tabular-nums"> {result.status}</span>}
      <span className="text-muted tabular-nums">{duration(result.latency_ms)}</span>
    </Status>
  )
}

function describe(offer: Offer): string {
  const models = offer.models.length > 0 ? plural(offer.models.length, 'model') : 'any model'
  if (offer.stored?.base_url) return `${models} at ${offer.stored.base_url}`
  return offer.builtIn ? models : `${models}, ${offer.kind} API format`
}

function credentialOf(stored: Schemas['Provider'] | null): string {
  if (!stored) return 'server credential'
  if (stored.credentials.length > 0) return plural(stored.credentials.length, 'credential')
  if (stored.has_api_key) return stored.has_headers ? 'credential and headers set' : 'credential set'
  return stored.has_headers ? 'headers set' : 'needs no credential'
}
