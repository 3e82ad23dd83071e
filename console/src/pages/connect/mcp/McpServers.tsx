/** MCP servers of the organization, and how agents reach them. */
import { Blocks, Bot, Plus } from 'lucide-react'
import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { pollingOptions } from '@/api/query'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { apiSnippet } from '@/lib/snippets'
import { useNow } from '@/lib/useNow'
import { Badge, Button, Code, Empty, ErrorPanel, Page, Pager, Section, SkeletonRows, Table, type Column } from '@/ui'
import { ConnectAgent } from './ConnectAgent'
import { AUTH_NAMES, ServerForm } from './ServerForm'
import { ServerState } from './ServerState'

type Server = Schemas['McpServer']

export function McpServers() {
  const { orgId } = useMe()
  const [open, setOpen] = useState<'add' | 'connect' | null>(null)
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/mcp-servers', { params: { path: { orgId }, query: { limit: 50 } } }, { ...cursorPaging, ...pollingOptions(10_000) })
  const servers = list.data?.pages.flatMap((page) => page.servers) ?? []
  const add = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => setOpen('add')}>
      Add server
    </Button>
  )
  const connect = (
    <Button icon={<Bot size={14} aria-hidden />} onClick={() => setOpen('connect')}>
      Connect an agent
    </Button>
  )
  return (
    <Page
      title="MCP servers"
      about="Agents reach your MCP servers through one URL and one key; every tool call is logged."
      actions={
        servers.length > 0 && (
          <>
            {connect}
            {add}
          </>
        )
      }
    >
      {list.isPending ? (
        <SkeletonRows />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the MCP servers" onRetry={() => void list.refetch()} />
      ) : servers.length === 0 ? (
        <Empty
          icon={<Blocks size={24} aria-hidden />}
          title="No MCP servers yet"
          action={
            <>
              {add}
              {connect}
            </>
          }
          more={<Code label="The same with the API" code={apiSnippet(location.origin, `/orgs/${orgId}/mcp-servers`, { name: 'github', url: 'https://api.githubcopilot.com/mcp/', auth: { type: 'per_user_headers', names: ['Authorization'] } })} />}
        >
          Add a server once, with its credentials. Agents then see its tools through the gateway, limited to what their key allows. Prompts and skills of this organization are offered on the same address.
        </Empty>
      ) : (
        <Section flush>
          <ServerTable servers={servers} />
          {list.hasNextPage && <Pager shown={servers.length} what="servers" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </Section>
      )}
      {open === 'add' && <ServerForm server={null} onClose={() => setOpen(null)} />}
      {open === 'connect' && <ConnectAgent servers={servers} onClose={() => setOpen(null)} />}
    </Page>
  )
}

function ServerTable({ servers }: { servers: readonly Server[] }) {
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const navigate = useNavigate()
  const columns: Column<Server>[] = [
    {
      key: 'name',
      header: 'Server',
      className: 'name max-w-[1px] w-1/2',
      cell: (server) => (
        <span className="flex min-w-0 flex-col py-1.5">
          <Link to="/mcp/$server" params={{ server: server.name }} search={{}} className="font-medium hover:underline">
            {server.name}
          </Link>
          <span className="name truncate font-mono text-xs text-muted" title={server.url}>
            {server.url}
          </span>
          {server.status.last_error !== null && server.enabled && (
            <span className="name truncate text-xs text-err" title={server.status.last_error}>
              {server.status.last_error}
            </span>
          )}
        </span>
      ),
    },
    { key: 'state', header: 'State', cell: (server) => <ServerState server={server} /> },
    { key: 'tools', header: 'Tools', number: true, cell: (server) => server.status.tools ?? '–' },
    {
      key: 'access',
      header: 'Access',
      from: 'md',
      cell: (server) => (
        <span className="flex flex-wrap gap-1">
          <Badge>{AUTH_NAMES[server.auth.type]}</Badge>
          {server.read_only && <Badge>read-only tools</Badge>}
          {server.pin && <Badge title="New and changed tools wait for approval">approval</Badge>}
        </span>
      ),
    },
    { key: 'protocol', header: 'Protocol', from: 'lg', cell: (server) => server.status.protocol_version ?? <span className="text-muted">–</span> },
    { key: 'ok', header: 'Last response', from: 'md', className: 'whitespace-nowrap', cell: (server) => (server.status.last_ok_at === null ? <span className="text-muted">never</span> : <time title={time(server.status.last_ok_at, zone, 'full')}>{ago(server.status.last_ok_at, now)}</time>) },
  ]
  return <Table label="MCP servers" columns={columns} rows={servers} rowKey={(server) => server.name} onOpen={(server) => void navigate({ to: '/mcp/$server', params: { server: server.name }, search: {} })} />
}
