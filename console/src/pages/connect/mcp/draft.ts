/** The form of an MCP server, and the change that it makes. */
import type { Schemas } from '@/api/client'
import { parseHeaders } from '@/lib/headers'

type Server = Schemas['McpServer']

export interface ServerDraft {
  name: string
  url: string
  transport: Server['transport']
  auth: Server['auth']['type']
  authHeaders: string
  tokenUrl: string
  clientId: string
  clientSecret: string
  scope: string
  userHeaders: string
  headers: string
  forwardHeaders: string
  allow: string
  deny: string
  readOnly: boolean
  tellsIdentity: boolean
  pin: boolean
  timeout: string
  prices: string
  instructions: string
  enabled: boolean
}

const DEFAULT_TIMEOUT_MS = 60_000

export function draftOf(server: Server | null): ServerDraft {
  const auth = server?.auth
  return {
    name: server?.name ?? '',
    url: server?.url ?? '',
    transport: server?.transport ?? 'auto',
    auth: auth?.type ?? 'none',
    authHeaders: '',
    tokenUrl: auth?.type === 'client_credentials' ? auth.token_url : '',
    clientId: auth?.type === 'client_credentials' ? auth.client_id : '',
    clientSecret: '',
    scope: auth?.type === 'client_credentials' ? (auth.scope ?? '') : '',
    userHeaders: auth?.type === 'per_user_headers' ? auth.names.join(', ') : '',
    headers: '',
    forwardHeaders: server?.forward_headers.join(', ') ?? '',
    allow: server?.allow.join(', ') ?? '',
    deny: server?.deny.join(', ') ?? '',
    readOnly: server?.read_only ?? false,
    tellsIdentity: server?.identity === 'claims',
    pin: server?.pin ?? true,
    timeout: String((server?.timeout_ms ?? DEFAULT_TIMEOUT_MS) / 1000),
    prices: Object.entries(server?.prices ?? {}).map(([tool, usd]) => `${tool}: ${usd}`).join('\n'),
    instructions: server?.instructions ?? '',
    enabled: server?.enabled ?? true,
  }
}

/** Secrets that are left empty stay as they are stored. */
export function serverChange(draft: ServerDraft, server: Server | null): Schemas['McpServerChange'] {
  const auth = authOf(draft, server)
  return {
    url: draft.url.trim(),
    transport: draft.transport,
    identity: draft.tellsIdentity ? 'claims' : 'none',
    ...(auth && { auth }),
    ...(draft.headers.trim() !== '' && { headers: parseHeaders(draft.headers) }),
    forward_headers: names(draft.forwardHeaders),
    allow: names(draft.allow),
    deny: names(draft.deny),
    read_only: draft.readOnly,
    pin: draft.pin,
    timeout_ms: Math.round(Number(draft.timeout) * 1000),
    prices: Object.fromEntries(Object.entries(parseHeaders(draft.prices)).map(([tool, usd]) => [tool, Number(usd)])),
    instructions: draft.instructions.trim() || null,
    enabled: draft.enabled,
  }
}

function authOf(draft: ServerDraft, server: Server | null): Schemas['NewMcpAuth'] | null {
  const isKept = server?.auth.type === draft.auth
  if (draft.auth === 'none') return isKept ? null : { type: 'none' }
  if (draft.auth === 'headers') return isKept && draft.authHeaders.trim() === '' ? null : { type: 'headers', headers: parseHeaders(draft.authHeaders) }
  if (draft.auth === 'per_user_headers') return { type: 'per_user_headers', names: names(draft.userHeaders) }
  return { type: 'client_credentials', token_url: draft.tokenUrl.trim(), client_id: draft.clientId.trim(), scope: draft.scope.trim() || null, ...(draft.clientSecret !== '' && { client_secret: draft.clientSecret }) }
}

export function names(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean)
}
