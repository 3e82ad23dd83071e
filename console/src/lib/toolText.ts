/** Texts of MCP tools that are compared line by line. */

/** A definition as a model reads it: the description, then everything else but the name. */
export function definitionText(definition: unknown): string {
  if (typeof definition !== 'object' || definition === null) return ''
  const { description, ...others } = definition as Record<string, unknown>
  delete others.name
  return `${typeof description === 'string' ? description : ''}\n\n${JSON.stringify(others, null, 2)}`
}
