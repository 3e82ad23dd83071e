/**
 * Prompt templates as the server reads them: `{{name}}` is a variable, `\{{` stands for plain braces. Here they are only
 * taken apart for highlighting and for a preview of what is not saved yet; what is stored is rendered by the server.
 */

export type TemplatePiece =
  | { kind: 'text'; text: string }
  | { kind: 'variable'; text: string; name: string }
  /** Braces that are no variable: the server would refuse them. */
  | { kind: 'bad'; text: string }

const TAG = /\\\{\{|\{\{([\s\S]*?)\}\}|\{\{/g
const NAME = /^[A-Za-z_][\w.-]*$/

export function templatePieces(content: string): TemplatePiece[] {
  const pieces: TemplatePiece[] = []
  let from = 0
  for (const match of content.matchAll(TAG)) {
    if (match.index > from) pieces.push({ kind: 'text', text: content.slice(from, match.index) })
    pieces.push(pieceOf(match[0], match[1]))
    from = match.index + match[0].length
  }
  if (from < content.length) pieces.push({ kind: 'text', text: content.slice(from) })
  return pieces
}

function pieceOf(text: string, inner: string | undefined): TemplatePiece {
  if (text.startsWith('\\')) return { kind: 'text', text }
  const name = inner?.trim() ?? ''
  return NAME.test(name) ? { kind: 'variable', text, name } : { kind: 'bad', text }
}

/** Each name once, in the order in which they first come. */
export function variablesOf(content: string): string[] {
  const names = templatePieces(content).flatMap((piece) => (piece.kind === 'variable' ? [piece.name] : []))
  return [...new Set(names)]
}

/** The text with the values put in; a variable without a value stays as it is written. */
export function renderHere(content: string, values: Readonly<Record<string, string>>): string {
  return templatePieces(content)
    .map((piece) => (piece.kind === 'variable' ? (values[piece.name] ?? piece.text) : piece.text.replaceAll('\\{{', '{{')))
    .join('')
}

/** The pieces of each line, for an editor that shows lines. */
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
