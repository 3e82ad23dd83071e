/**
 * Quick validation of a SKILL.md in the editor: missing frontmatter, and missing or invalid name and description. The
 * server parses the YAML on save.
 */

import { integer } from './format'

export interface SourceProblem {
  /** 1-based. */
  line: number
  message: string
}

const NAME_PATTERN = /^[a-z0-9]+(-[a-z0-9]+)*$/
const MAX_NAME_LENGTH = 64
const MAX_DESCRIPTION_LENGTH = 1024

export function validateSkillSource(source: string): SourceProblem[] {
  const lines = source.replace(/^\uFEFF/, '').split('\n')
  if (lines[0]?.trimEnd() !== '---') return [{ line: 1, message: 'must begin with a line of ---' }]
  const end = lines.findIndex((line, at) => at > 0 && line.trimEnd() === '---')
  if (end < 0) return [{ line: 1, message: 'the front matter has no closing line of ---' }]
  const header = lines.slice(1, end)
  const problems: SourceProblem[] = []
  const name = readKey(header, 'name')
  if (!name || name.value === '') problems.push({ line: name?.line ?? 1, message: 'name: is required' })
  else if (!NAME_PATTERN.test(name.value) || name.value.length > MAX_NAME_LENGTH) problems.push({ line: name.line, message: 'name: must be kebab-case, 1 to 64 lowercase letters and digits, words joined by single hyphens' })
  const description = readKey(header, 'description')
  if (!description || description.value === '') problems.push({ line: description?.line ?? 1, message: 'description: is required' })
  else if (description.value.length > MAX_DESCRIPTION_LENGTH) problems.push({ line: description.line, message: `description: has ${integer(description.value.length)} characters; the maximum is ${integer(MAX_DESCRIPTION_LENGTH)}` })
  const tab = header.findIndex((line) => /^\s*\t/.test(line))
  if (tab >= 0) problems.push({ line: tab + 2, message: 'YAML is indented with spaces, not with tabs' })
  if (lines.slice(end + 1).every((line) => line.trim() === '')) problems.push({ line: end + 1, message: 'the instructions below the front matter are missing' })
  return problems
}

export const NO_LICENCE = 'No licence stated'

/** `Licence: MIT`, from the field `license` of the front matter. */
export function licenceText(source: string): string {
  const lines = source.split('\n')
  const end = lines.findIndex((line, at) => at > 0 && line.trimEnd() === '---')
  const licence = readKey(lines.slice(1, Math.max(1, end)), 'license')?.value
  return licence ? `Licence: ${licence}` : NO_LICENCE
}

/** Reads a top-level key, including indented continuation lines. */
function readKey(header: readonly string[], key: string): { line: number; value: string } | null {
  const at = header.findIndex((line) => line.startsWith(`${key}:`))
  if (at < 0) return null
  const first = (header[at] ?? '').slice(key.length + 1).trim()
  const below: string[] = []
  for (let next = at + 1; next < header.length && /^\s+\S/.test(header[next] ?? ''); next++) below.push((header[next] ?? '').trim())
  const folded = /^[|>][+-]?$/.test(first)
  const raw = folded ? below.join(' ') : [first, ...below].join(' ')
  return { line: at + 2, value: raw.trim().replace(/^(["'])([\s\S]*)\1$/, '$2') }
}

/** Converts the line number of a server message, which counts from the start of the YAML, to a line of the file. */
export function sourceLineOf(message: string): number | null {
  const found = /line (\d+)/.exec(message)
  return found ? Number(found[1]) + 1 : null
}
