/** Ready settings of coding agents for the gateway's MCP endpoints. */
import { maskKey } from './snippets'

export interface AgentSnippet {
  name: string
  /** Displayed code, with the key masked. */
  code: string
  /** Returns the code with the real key. */
  copy: () => string
  note: string
}

export interface AgentChoice {
  origin: string
  /** One server, or null for all of them. */
  server: string | null
  /** The raw key, or null if it is not in memory. */
  key: string | null
}

/** Address of all servers that a key may use, or of one. */
export function mcpUrl({ origin, server }: Pick<AgentChoice, 'origin' | 'server'>): string {
  return server === null ? `${origin}/mcp` : `${origin}/mcp/${server}`
}

export function agentSnippets(choice: AgentChoice): AgentSnippet[] {
  const url = mcpUrl(choice)
  const name = choice.server ?? 'gateway'
  const claude = (key: string) => `claude mcp add --transport http ${name} ${url} --header "X-Gateway-Key: ${key}"`
  const header = (value: string) => ({ 'X-Gateway-Key': value })
  const fixed = (code: string) => ({ code, copy: () => code })
  return [
    { name: 'Claude Code', code: claude(choice.key === null ? '$GATEWAY_KEY' : maskKey(choice.key)), copy: () => claude(choice.key ?? '$GATEWAY_KEY'), note: 'Run it in the project, or with --scope user for all projects.' },
    { name: 'Codex', ...fixed(`[mcp_servers.${name}]\nurl = "${url}"\nenv_http_headers = { "X-Gateway-Key" = "GATEWAY_KEY" }`), note: 'In ~/.codex/config.toml. Codex reads the key from the environment variable GATEWAY_KEY.' },
    { name: 'Cursor', ...fixed(json({ mcpServers: { [name]: { url, headers: header('${env:GATEWAY_KEY}') } } })), note: 'In .cursor/mcp.json of the project, or ~/.cursor/mcp.json. The key is read from GATEWAY_KEY.' },
    {
      name: 'VS Code',
      ...fixed(json({ inputs: [{ id: 'gateway-key', type: 'promptString', description: 'Key of the gateway', password: true }], servers: { [name]: { type: 'http', url, headers: header('${input:gateway-key}') } } })),
      note: 'In .vscode/mcp.json. VS Code asks for the key once and stores it.',
    },
  ]
}

const json = (value: unknown): string => JSON.stringify(value, null, 2)
