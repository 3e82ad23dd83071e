/** One MCP server: its state, tools, own credentials, and the keys that reach it. */
import { Bot, EllipsisVertical, FlaskConical, Pencil, RotateCw, ScrollText, Trash2 } from 'lucide-react'
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate, pollingOptions } from '@/api/query'
import { duration, plural } from '@/lib/format'
import { term } from '@/lib/query'
import { reachesServer } from '@/lib/scope'
import { useAction } from '@/lib/useAction'
import { Badge, Button, ConfirmDialog, ErrorLine, ErrorPanel, Menu, MenuItem, Page, Section, SkeletonRows, toast, toastWarning } from '@/ui'
import { ConnectAgent } from './ConnectAgent'
import { OwnCredentials } from './OwnCredentials'
import { AUTH_NAMES, ServerForm } from './ServerForm'
import { ServerState } from './ServerState'
import { Tools } from './Tools'

const route = getRouteApi('/shell/mcp/$server')
const LIST = '/api/v1/orgs/{orgId}/mcp-servers'

export function McpServerPage() {
  const { server: name } = route.useParams()
  const { orgId } = useMe()
  const navigate = useNavigate()
  const [open, setOpen] = useState<'edit' | 'delete' | 'connect' | null>(null)
  const close = () => setOpen(null)
  const params = { path: { orgId, name } }
  const query = api.useQuery('get', '/api/v1/orgs/{orgId}/mcp-servers/{name}', { params }, pollingOptions(10_000))
  const test = useAction(async () => {
    const { ok, latency_ms, tools, error } = await unwrap(client.POST('/api/v1/orgs/{orgId}/mcp-servers/{name}/test', { params }))
    await invalidate(LIST)
    if (ok) toast(`${name} answered in ${duration(latency_ms)} with ${plural(tools ?? 0, 'tool')}`)
    else toastWarning(`${name} failed: ${error ?? 'no answer'}`)
  })
  const refresh = useAction(async () => {
    await unwrap(client.POST('/api/v1/orgs/{orgId}/mcp-servers/{name}/refresh', { params }))
    await invalidate(LIST)
    toast('Tools refreshed')
  })
  const remove = async (): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/mcp-servers/{name}', { params }))
    await navigate({ to: '/mcp' })
    await invalidate(LIST)
    toast(`${name} deleted`)
  }
  const server = query.data
  if (!server) {
    return <Page title={name}>{query.isError ? <ErrorPanel error={query.error} what="this server" onRetry={() => void query.refetch()} /> : <SkeletonRows />}</Page>
  }
  return (
    <Page
      title={server.name}
      beside={<ServerState server={server} />}
      about={<span className="font-mono text-xs break-all">{server.url}</span>}
      actions={
        <>
          <Button icon={<Bot size={14} aria-hidden />} onClick={() => setOpen('connect')}>
            <span className="max-sm:sr-only">Connect an agent</span>
          </Button>
          <Button needs="admin" busy={test.busy} icon={<FlaskConical size={14} aria-hidden />} onClick={test.run}>
            Test
          </Button>
          <Menu trigger={<Button square aria-label="More actions" icon={<EllipsisVertical size={16} aria-hidden />} />}>
            <MenuItem needs="admin" icon={<RotateCw size={14} aria-hidden />} onSelect={refresh.run}>
              Refresh tools
            </MenuItem>
            <MenuItem icon={<ScrollText size={14} aria-hidden />} onSelect={() => void navigate({ to: '/logs', search: { query: term('provider', `mcp:${name}`) } })}>
              Show calls in Logs
            </MenuItem>
            <MenuItem needs="admin" icon={<Pencil size={14} aria-hidden />} onSelect={() => setOpen('edit')}>
              Edit…
            </MenuItem>
            <MenuItem needs="admin" danger icon={<Trash2 size={14} aria-hidden />} onSelect={() => setOpen('delete')}>
              Delete…
            </MenuItem>
          </Menu>
        </>
      }
    >
      <ErrorLine error={test.error ?? refresh.error} />
      {server.status.last_error !== null && server.enabled && (
        <p role="status" className="rounded-sm border border-line bg-err-soft px-3 py-2 break-words">
          Last error: {server.status.last_error}
        </p>
      )}
      {server.auth.type === 'per_user_headers' && <OwnCredentials server={name} />}
      <Tools server={server} />
      <Access server={server} />
      {open === 'edit' && <ServerForm server={server} onClose={close} />}
      {open === 'connect' && <ConnectAgent servers={[server]} only={name} onClose={close} />}
      <ConfirmDialog open={open === 'delete'} onClose={close} title={`Delete ${name}?`} action="Delete server" onConfirm={remove}>
        Agents lose its tools at once. Its stored credentials, and those of users, are deleted.
      </ConfirmDialog>
    </Page>
  )
}

/** How the gateway signs in, and which keys reach the server. */
function Access({ server }: { server: Schemas['McpServer'] }) {
  const keys = api.useQuery('get', '/api/v1/keys', { params: { query: { limit: 200 } } }, { staleTime: 60_000 })
  const reaching = keys.data?.keys.filter((key) => key.revoked_at === null && reachesServer(key.scopes, server.name)) ?? []
  return (
    <Section title="Access">
      <dl className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-6 gap-y-1.5">
        <dt className="text-muted">Credentials</dt>
        <dd>{AUTH_NAMES[server.auth.type]}</dd>
        <dt className="text-muted">Timeout</dt>
        <dd>{duration(server.timeout_ms)}</dd>
        {server.status.protocol_version !== null && (
          <>
            <dt className="text-muted">Protocol</dt>
            <dd>{server.status.protocol_version}</dd>
          </>
        )}
        <dt className="text-muted">Keys that reach it</dt>
        <dd className="flex flex-wrap gap-1">
          {keys.data && reaching.length === 0 && <span className="text-muted">none</span>}
          {reaching.slice(0, 20).map((key) => (
            <Link key={key.id} to="/keys" search={{ q: key.name }}>
              <Badge title={key.scopes.join('\n')}><span className="name wrap-anywhere whitespace-normal">{key.name}</span></Badge>
            </Link>
          ))}
          {reaching.length > 20 && <span className="text-muted">and {reaching.length - 20} more</span>}
        </dd>
      </dl>
    </Section>
  )
}
