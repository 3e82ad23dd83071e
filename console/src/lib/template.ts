/**
 * Prompt templates in the syntax of the server: `{{name}}` is a variable, `\{{` is a literal `{{`. They are parsed here
 * only for highlighting and for previews of unsaved text; the server renders stored versions.
 */

export type TemplatePiece =
  | { kind: 'text'; text: string }
  | { kind: 'variable'; text: string; name: string }
  /** Braces without a valid variable name; the server rejects them. */
  | { kind: 'invalid'; text: string }

const TAG_PATTERN = /\\\{\{|\{\{([\s\S]*?)\}\}|\{\{/g
const NAME_PATTERN = /^[A-Za-z_][\w.-]*$/

export function templatePieces(content: string): TemplatePiece[] {
  const pieces: TemplatePiece[] = []
  let from = 0
  for (const match of content.matchAll(TAG_PATTERN)) {
    if (match.index > from) pieces.push({ kind: 'text', text: content.slice(from, match.index) })
    pieces.push(classifyTag(match[0], match[1]))
    from = match.index + match[0].length
  }
  if (from < content.length) pieces.push({ kind: 'text', text: content.slice(from) })
  return pieces
}

function classifyTag(text: string, inner: string | undefined): TemplatePiece {
  if (text.startsWith('\\')) return { kind: 'text', text }
  const name = inner?.trim() ?? ''
  return NAME_PATTERN.test(name) ? { kind: 'variable', text, name } : { kind: 'invalid', text }
}

/** Unique variable names in order of first occurrence. */
export function variablesOf(content: string): string[] {
  const names = templatePieces(content).flatMap((piece) => (piece.kind === 'variable' ? [piece.name] : []))
  return [...new Set(names)]
}

/** Renders a local preview. A variable without a value stays as its tag. */
export function renderPreview(content: string, values: Readonly<Record<string, string>>): string {
  return templatePieces(content)
    .map((piece) => (piece.kind === 'variable' ? (values[piece.name] ?? piece.text) : piece.text.replaceAll('\\{{', '{{')))
    .join('')
}

/** Template pieces grouped by line. */
export function templateLines(content: string): TemplatePiece[][] {
  const lines: TemplatePiece[][] = [[]]
  for (const piece of templatePieces(content)) {
    piece.text.split('\n').forEach((text, at) => {
      if (at > 0) lines.push([])
      if (text !== '') lines.at(-1)?.push({ ...piece, text })
    })
  }
  return lines
}
