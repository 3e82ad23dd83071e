/** Search parameters of the page of an MCP server. */
import { text, type RawSearch } from '@/lib/search'

export interface McpServerSearch {
  /** Name of the tool that is shown. */
  tool?: string
}

export function readMcpServerSearch(search: RawSearch): McpServerSearch {
  return { tool: text(search['tool']) }
}
