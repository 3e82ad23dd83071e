/**
 * Definitions of approved MCP tools as this browser has shown them, so that a changed one can be compared with them. The
 * gateway keeps only the hashes of what was approved.
 */

export interface SeenTool {
  /** When it was shown, in milliseconds. */
  at: number
  text: string
}

interface ToolDefinition {
  name: string
  description: string | null
  input_schema?: unknown
  pinned: boolean | null
}

type Seen = Record<string, Record<string, SeenTool>>

const STORED = 'console.mcp-tools'
/** Beyond this size nothing is remembered. */
const MAX_CHARS = 400_000

/** What a model reads of a tool. */
export function definitionText(tool: Pick<ToolDefinition, 'description' | 'input_schema'>): string {
  return `${tool.description ?? ''}\n\n${JSON.stringify(tool.input_schema, null, 2) ?? ''}`
}

/** Remembers the approved tools of a list and returns what was known of all of them before. */
export function rememberTools(server: string, tools: readonly ToolDefinition[], now: number, storage: Pick<Storage, 'getItem' | 'setItem'> = localStorage): Record<string, SeenTool> {
  const all = read(storage)
  const before = all[server] ?? {}
  const approved = tools.filter((tool) => tool.pinned === true).map((tool): [string, SeenTool] => [tool.name, { at: now, text: definitionText(tool) }])
  const changed = tools.filter((tool) => tool.pinned === false && before[tool.name] !== undefined).map((tool): [string, SeenTool] => [tool.name, before[tool.name] as SeenTool])
  const next = JSON.stringify({ ...all, [server]: Object.fromEntries([...approved, ...changed]) })
  try {
    if (next.length <= MAX_CHARS) storage.setItem(STORED, next)
  } catch {
    // A full storage only means that the next change has nothing to be compared with.
  }
  return before
}

function read(storage: Pick<Storage, 'getItem'>): Seen {
  try {
    const stored: unknown = JSON.parse(storage.getItem(STORED) ?? '{}')
    return typeof stored === 'object' && stored !== null ? (stored as Seen) : {}
  } catch {
    return {}
  }
}
