import { KeyRound } from 'lucide-react'
import { useState } from 'react'
import type { Schemas } from '@/api/client'
import { agentSnippets, mcpUrl } from '@/lib/agents'
import { Button, Code, Dialog, Field, Select, Snippets } from '@/ui'
import { KeyForm } from '../keys/KeyForm'

/** Address and ready settings for coding agents, with a key for them. */
export function ConnectAgent({ servers, only, onClose }: { servers: readonly Schemas['McpServer'][]; only?: string; onClose: () => void }) {
  const [server, setServer] = useState<string | null>(only ?? null)
  const [creating, setCreating] = useState(false)
  const choice = { origin: location.origin, server }
  if (creating) return <KeyForm apiKey={null} initialScopes={[`mcp:${server ?? '*'}`]} onClose={onClose} />
  return (
    <Dialog open onClose={onClose} size="lg" title="Connect an agent" description="Add the gateway to the agent as one MCP server. The agent sees the tools its key may use." actions={<Button onClick={onClose}>Close</Button>}>
      <div className="flex flex-wrap items-end gap-3">
        <Field label="Servers" className="min-w-56">
          <Select value={server ?? ''} onChange={(event) => setServer(event.target.value || null)} options={[{ value: '', label: 'All that the key may use' }, ...servers.map(({ name }) => ({ value: name, label: name }))]} />
        </Field>
        <Button needs="member" icon={<KeyRound size={14} aria-hidden />} onClick={() => setCreating(true)}>
          Create a key for it
        </Button>
      </div>
      <Code label="Address" code={mcpUrl(choice)} />
      <Snippets label="Agent" snippets={agentSnippets({ ...choice, key: null })} />
    </Dialog>
  )
}
