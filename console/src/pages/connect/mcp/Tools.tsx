import { TriangleAlert } from 'lucide-react'
import { getRouteApi } from '@tanstack/react-router'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { plural } from '@/lib/format'
import { Badge, Button, Empty, Section, SkeletonRows, Status, Switch, Table, toast, toastError, usePermissionReason, type Column } from '@/ui'
import { ToolDetail } from './ToolDetail'

type Tool = Schemas['McpTool']
type Server = Schemas['McpServer']

const route = getRouteApi('/shell/mcp/$server')

/** The tools of a server; a click opens one with its schema. */
export function Tools({ server }: { server: Server }) {
  const { orgId } = useMe()
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const reason = usePermissionReason('admin')
  const params = { path: { orgId, name: server.name } }
  const list = api.useQuery('get', '/api/v1/orgs/{orgId}/mcp-servers/{name}/tools', { params }, { enabled: server.enabled, retry: false })
  const tools = list.data?.tools
  const show = (tool: string | undefined) => void navigate({ search: (before) => ({ ...before, tool }) })
  const offer = async (tool: Tool, isOffered: boolean): Promise<void> => {
    const deny = isOffered ? server.deny.filter((pattern) => pattern !== tool.name) : [...server.deny, tool.name]
    try {
      await unwrap(client.PUT('/api/v1/orgs/{orgId}/mcp-servers/{name}', { params, body: { deny } }))
      await invalidate('/api/v1/orgs/{orgId}/mcp-servers')
      toast(isOffered ? `${tool.name} is offered to agents` : `${tool.name} is hidden from agents`)
    } catch (error) {
      toastError(error)
    }
  }
  const columns: Column<Tool>[] = [
    {
      key: 'name',
      header: 'Tool',
      className: 'name max-w-[1px] w-2/3',
      cell: (tool) => (
        <span className="flex min-w-0 flex-col py-1.5">
          <code className="name truncate font-medium">{tool.name}</code>
          <span className="line-clamp-2 text-xs text-muted">{tool.description}</span>
        </span>
      ),
    },
    { key: 'state', header: 'State', cell: (tool) => <ToolState tool={tool} /> },
    {
      key: 'findings',
      header: 'Findings',
      from: 'sm',
      cell: (tool) =>
        tool.findings.length === 0 ? (
          <span className="text-muted">none</span>
        ) : (
          <Badge tone="err">
            <TriangleAlert size={12} aria-hidden /> {plural(tool.findings.length, 'finding')}
          </Badge>
        ),
    },
    {
      key: 'offer',
      header: 'Offered',
      from: 'sm',
      cell: (tool) => {
        const why = reason ?? cannotToggle(tool, server)
        return <Switch quiet label={`Offer ${tool.name}`} title={why ?? undefined} disabled={why !== null} checked={tool.offered} onChange={(event) => void offer(tool, event.target.checked)} />
      },
    },
  ]
  const shown = tools?.find((tool) => tool.name === search.tool)
  const waiting = tools?.filter((tool) => tool.pinned === false).length ?? 0
  return (
    <>
      <Section title="Tools" flush aside={waiting > 0 && <Badge tone="warn">{plural(waiting, 'tool')} to approve</Badge>}>
        {!server.enabled ? (
          <p className="px-3 pb-3 text-muted">The server is off, so its tools are not read.</p>
        ) : list.isError ? (
          <div className="flex flex-wrap items-center gap-3 px-3 pb-3 text-muted">
            <span className="min-w-0 break-words">The tools could not be read{server.status.last_error === null ? `: ${list.error.message}` : ''}.</span>
            <Button size="sm" onClick={() => void list.refetch()}>Retry</Button>
          </div>
        ) : !tools ? (
          <SkeletonRows rows={4} />
        ) : tools.length === 0 ? (
          <Empty title="The server offers no tools">It may offer prompts or resources only.</Empty>
        ) : (
          <Table label="Tools" columns={columns} rows={tools} rowKey={(tool) => tool.name} onOpen={(tool) => show(tool.name)} />
        )}
      </Section>
      {shown && <ToolDetail server={server} tool={shown} onClose={() => show(undefined)} />}
    </>
  )
}

export function ToolState({ tool }: { tool: Tool }) {
  if (tool.pinned === false) return <Status tone="warn">{tool.changed?.approved ? 'changed' : 'to approve'}</Status>
  return tool.offered ? <Status tone="ok">offered</Status> : <Status tone="muted">hidden</Status>
}

/** Why the switch of a tool cannot change what is offered, or null. */
function cannotToggle(tool: Tool, server: Server): string | null {
  if (tool.pinned === false) return 'Approve the tool first'
  if (!tool.offered && !server.deny.includes(tool.name)) return 'Hidden by a pattern, or because it is not read-only: edit the server'
  return null
}
