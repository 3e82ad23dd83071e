import { Check } from 'lucide-react'
import { Link } from '@tanstack/react-router'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { joinTerms, term } from '@/lib/query'
import { definitionText } from '@/lib/toolText'
import { useAction } from '@/lib/useAction'
import { Button, Dialog, ErrorLine, toast } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import { Json } from '@/ui/Json'
import { ToolState } from './Tools'

interface ToolDetailProps {
  server: Schemas['McpServer']
  tool: Schemas['McpTool']
  onClose: () => void
}

/** What a model reads of a tool, what was found in it, and its approval. */
export function ToolDetail({ server, tool, onClose }: ToolDetailProps) {
  const { orgId } = useMe()
  const needsApproval = tool.pinned === false
  const approved = tool.changed?.approved ?? null
  const approve = useAction(async () => {
    await unwrap(client.POST('/api/v1/orgs/{orgId}/mcp-servers/{name}/tools/{tool}/approve', { params: { path: { orgId, name: server.name, tool: tool.name } }, body: { hash: tool.hash } }))
    await invalidate('/api/v1/orgs/{orgId}/mcp-servers')
    toast(`${tool.name} approved`)
    onClose()
  })
  const query = joinTerms(term('provider', `mcp:${server.name}`), term('tool', tool.name))
  return (
    <Dialog
      open
      onClose={onClose}
      size="lg"
      title={<code>{tool.name}</code>}
      description={`Agents call it ${server.name}__${tool.name}.`}
      actions={
        <>
          <Button onClick={onClose}>Close</Button>
          {needsApproval && (
            <Button kind="primary" needs="admin" busy={approve.busy} icon={<Check size={14} aria-hidden />} onClick={approve.run}>
              Approve this definition
            </Button>
          )}
        </>
      }
    >
      <div className="flex flex-wrap gap-x-6">
        <ToolState tool={tool} />
        <Link to="/logs" search={{ query }} className="text-accent underline">
          Show calls in Logs
        </Link>
      </div>
      {tool.findings.length > 0 && (
        <section aria-label="Findings" className="rounded-sm border border-line bg-err-soft px-3 py-2">
          <h3 className="text-sm">What the safety rules found</h3>
          <ul className="mt-1 flex flex-col gap-1">
            {tool.findings.map((finding) => (
              <li key={`${finding.kind} ${finding.passage}`} className="break-words">
                <b>{finding.kind}</b> <q className="font-mono text-xs">{finding.passage}</q>
              </li>
            ))}
          </ul>
        </section>
      )}
      {needsApproval && approved !== null && (
        <section aria-label="What changed" className="flex flex-col gap-1">
          <h3 className="text-sm">What changed</h3>
          <p className="text-xs text-muted">Compared with the definition that was approved.</p>
          <DiffView label="Change of the definition" before={definitionText(approved)} after={definitionText(tool.changed?.current)} />
        </section>
      )}
      {needsApproval && approved === null && <p className="text-muted">It is new, or has changed since it was approved, and is hidden from agents. There is no approved definition to compare with: read all of it before you approve it.</p>}
      <h3 className="text-sm">Description</h3>
      <p className="break-words whitespace-pre-wrap">{tool.description ?? <span className="text-muted">none</span>}</p>
      <h3 className="text-sm">Input schema</h3>
      <Json value={tool.input_schema} label="Input schema" />
      <ErrorLine error={approve.error} />
    </Dialog>
  )
}
