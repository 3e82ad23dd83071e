import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, SecretInput, Select, Switch, TextArea, toast, toastWarning } from '@/ui'
import { draftOf, serverChange, type ServerDraft } from './draft'

type Server = Schemas['McpServer']

export const AUTH_NAMES: Record<Server['auth']['type'], string> = {
  none: 'no credentials',
  headers: 'shared headers',
  client_credentials: 'client credentials',
  per_user_headers: 'own credentials per user',
}
const AUTH_CHOICES: { value: Server['auth']['type']; label: string }[] = [
  { value: 'none', label: 'None' },
  { value: 'headers', label: 'Headers, the same for all callers' },
  { value: 'client_credentials', label: 'OAuth client credentials, the same for all callers' },
  { value: 'per_user_headers', label: 'Headers that each user stores' },
]
const TRANSPORTS: { value: Server['transport']; label: string }[] = [
  { value: 'auto', label: 'Streamable HTTP' },
  { value: 'sse', label: 'Server-sent events (older servers)' },
]
const FIELDS = ['name', 'url', 'auth.headers', 'auth.token_url', 'auth.client_id', 'auth.client_secret', 'auth.names', 'headers', 'forward_headers', 'allow', 'deny', 'timeout_ms', 'prices', 'instructions']

/** Adds a server or changes it. Secrets are write-only. */
export function ServerForm({ server, onClose, onSaved }: { server: Server | null; onClose: () => void; onSaved?: () => void }) {
  const { orgId } = useMe()
  const [draft, setDraft] = useState<ServerDraft>(() => draftOf(server))
  const set = (change: Partial<ServerDraft>) => setDraft((before) => ({ ...before, ...change }))
  const save = useAction(async () => {
    const body = serverChange(draft, server)
    const name = server?.name ?? draft.name.trim()
    const saved = server
      ? await unwrap(client.PUT('/api/v1/orgs/{orgId}/mcp-servers/{name}', { params: { path: { orgId, name } }, body }))
      : await unwrap(client.POST('/api/v1/orgs/{orgId}/mcp-servers', { params: { path: { orgId } }, body: { ...body, name } }))
    await invalidate('/api/v1/orgs/{orgId}/mcp-servers')
    if (saved.secrets_dropped) toastWarning(`${name} has a new address, so its stored credentials were dropped. Enter them again.`)
    else toast(server ? `${name} saved` : `${name} added`)
    onSaved?.()
    onClose()
  })
  const { fields } = save
  const kept = server !== null && server.has_secrets && server.auth.type === draft.auth
  return (
    <FormDialog onClose={onClose} size="lg" title={server ? `Edit ${server.name}` : 'Add MCP server'} action={save} submit={server ? 'Save server' : 'Add server'} fields={FIELDS}>
      <div className="grid gap-3 sm:grid-cols-3">
        {server === null && (
          <Field label="Name" hint="Prefix of tool names: github__get_issue." error={fields['name']}>
            <Input mono required autoFocus pattern="[a-z0-9\-]{1,32}" title="Lowercase letters, digits and dashes, at most 32" value={draft.name} placeholder="github" onChange={(event) => set({ name: event.target.value })} />
          </Field>
        )}
        <Field label="URL" hint="The server’s MCP endpoint." error={fields['url']} className={server === null ? 'sm:col-span-2' : 'sm:col-span-3'}>
          <Input mono type="url" required value={draft.url} placeholder="https://mcp.example.com/mcp" onChange={(event) => set({ url: event.target.value })} />
        </Field>
      </div>
      <Field label="Credentials">
        <Select value={draft.auth} onChange={(event) => set({ auth: event.target.value as ServerDraft['auth'] })} options={AUTH_CHOICES} />
      </Field>
      {draft.auth === 'headers' && (
        <Field label="Headers with credentials" hint={`${kept ? 'Stored. Leave empty to keep them. ' : ''}One per line, Name: value. Nobody can read them back.`} error={fields['auth.headers']}>
          <TextArea mono rows={2} value={draft.authHeaders} placeholder={kept ? 'set; type to replace' : 'Authorization: Bearer …'} onChange={(event) => set({ authHeaders: event.target.value })} />
        </Field>
      )}
      {draft.auth === 'client_credentials' && (
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label="Token URL" error={fields['auth.token_url']}>
            <Input mono type="url" required value={draft.tokenUrl} placeholder="https://auth.example.com/oauth/token" onChange={(event) => set({ tokenUrl: event.target.value })} />
          </Field>
          <Field label="Client id" error={fields['auth.client_id']}>
            <Input mono required value={draft.clientId} onChange={(event) => set({ clientId: event.target.value })} />
          </Field>
          <Field label="Client secret" hint={kept ? 'Stored. Leave empty to keep it.' : 'Nobody can read it back.'} error={fields['auth.client_secret']}>
            <SecretInput mono autoComplete="off" required={!kept} value={draft.clientSecret} onChange={(event) => set({ clientSecret: event.target.value })} />
          </Field>
          <Field label="Scope">
            <Input mono value={draft.scope} placeholder="none" onChange={(event) => set({ scope: event.target.value })} />
          </Field>
        </div>
      )}
      {draft.auth === 'per_user_headers' && (
        <Field label="Headers that each user stores" hint="Names, separated by commas. Users enter their values on the page of the server." error={fields['auth.names']}>
          <Input mono required value={draft.userHeaders} placeholder="Authorization" onChange={(event) => set({ userHeaders: event.target.value })} />
        </Field>
      )}
      <div className="grid gap-3 sm:grid-cols-2">
        <Switch label="Approve changed tools" hint="Hides new and changed tools until an admin approves them." checked={draft.pin} onChange={(event) => set({ pin: event.target.checked })} />
        <Switch label="Read-only tools" hint="Offers only tools that are marked read-only." checked={draft.readOnly} onChange={(event) => set({ readOnly: event.target.checked })} />
        <Switch label="Enabled" checked={draft.enabled} onChange={(event) => set({ enabled: event.target.checked })} />
      </div>
      <details className="rounded-sm border border-line px-3 py-2">
        <summary className="font-medium">More: tools, prices, headers, timeout, instructions</summary>
        <div className="mt-3 grid gap-3 sm:grid-cols-2">
          <Field label="Allowed tools" hint="Patterns such as get_*, separated by commas. Empty allows all." error={fields['allow']}>
            <Input mono value={draft.allow} onChange={(event) => set({ allow: event.target.value })} />
          </Field>
          <Field label="Denied tools" hint="They are never offered." error={fields['deny']}>
            <Input mono value={draft.deny} onChange={(event) => set({ deny: event.target.value })} />
          </Field>
          <Field label="Prices (USD per call)" hint="One tool per line, such as search: 0.001." error={fields['prices']}>
            <TextArea mono rows={2} value={draft.prices} onChange={(event) => set({ prices: event.target.value })} />
          </Field>
          <Field label="Other headers" hint={`${server?.has_secrets ? 'What you enter replaces all of them. ' : ''}One per line, Name: value. Sent with every request.`} error={fields['headers']}>
            <TextArea mono rows={2} value={draft.headers} onChange={(event) => set({ headers: event.target.value })} />
          </Field>
          <Field label="Headers of the caller to pass on" hint="Names, separated by commas; never credentials." error={fields['forward_headers']}>
            <Input mono value={draft.forwardHeaders} onChange={(event) => set({ forwardHeaders: event.target.value })} />
          </Field>
          <Field label="Timeout (seconds)" error={fields['timeout_ms']}>
            <Input type="number" min={1} max={600} step="any" required value={draft.timeout} onChange={(event) => set({ timeout: event.target.value })} />
          </Field>
          <Field label="Transport">
            <Select value={draft.transport === 'http' ? 'auto' : draft.transport} onChange={(event) => set({ transport: event.target.value as ServerDraft['transport'] })} options={TRANSPORTS} />
          </Field>
          <Switch label="Tell the server who calls" hint="Each call carries a signed token in X-Gateway-Identity." checked={draft.tellsIdentity} onChange={(event) => set({ tellsIdentity: event.target.checked })} />
          <Field label="Instructions for agents" hint="Replaces the instructions that the server sends." error={fields['instructions']} className="sm:col-span-2">
            <TextArea rows={2} value={draft.instructions} onChange={(event) => set({ instructions: event.target.value })} />
          </Field>
        </div>
      </details>
    </FormDialog>
  )
}
