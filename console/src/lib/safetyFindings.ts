/** The safety findings of a verdict, and the lines of the text that they are about. */
import type { SourceProblem } from './frontmatter'

/** Passages are cut after 80 characters, and quotes in them are replaced. */
const MATCHED_CHARS = 60

/** Reads `Found an encoded blob: "…"; a command that destroys data: "…".`; empty if nothing was found. */
export function parseFindings(rationale: string): { kind: string; passage: string }[] {
  if (!rationale.startsWith('Found ')) return []
  return [...rationale.slice('Found '.length).matchAll(/(?:^|; )([^":;]+): "([^"]*)"/g)].map((match) => ({ kind: match[1] ?? '', passage: (match[2] ?? '').replace(/…$/, '') }))
}

/** Number of findings of a verdict, also of those that cannot be read or found in the text. */
export function findingCount(rationale: string): number {
  return rationale.startsWith('Found ') ? Math.max(1, parseFindings(rationale).length) : 0
}

/** The findings whose passage the text still has, by line. */
export function findingsInText(rationale: string, text: string): SourceProblem[] {
  const lines = text.split('\n').map(plain)
  return parseFindings(rationale).flatMap(({ kind, passage }) => {
    const part = plain(passage).slice(0, MATCHED_CHARS)
    const at = part === '' ? -1 : lines.findIndex((line) => line.includes(part))
    return at < 0 ? [] : [{ line: at + 1, message: `${kind.charAt(0).toUpperCase()}${kind.slice(1)}` }]
  })
}

function plain(text: string): string {
  return text.replaceAll('"', "'").replace(/\s+/g, ' ').trim()
}
