// What the compiler cannot forbid: calls past the typed client, text rendered as HTML, foreign origins, untyped holes.
import { readFileSync, readdirSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'

const src = resolve(import.meta.dirname, '../src')
const RULES = [
  { bad: /\bfetch\(/, allowed: /^(api\/|lib\/sse\.ts$)/, why: 'calls go through src/api or src/lib/sse.ts' },
  { bad: /dangerouslySetInnerHTML|\.innerHTML|insertAdjacentHTML|document\.write/, why: 'nothing is rendered as HTML' },
  { bad: /(:|\bas|<)\s*any\b/, why: 'no any' },
  { bad: /@ts-(ignore|nocheck|expect-error)/, why: 'the types are right, or made right' },
  { bad: /\b(sessionStorage|indexedDB|document\.cookie)\b/, why: 'only localStorage is used, and only for the session and preferences' },
]
let failed = false
for (const entry of readdirSync(src, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.tsx?$/.test(entry.name) || entry.name === 'schema.d.ts') continue
  const path = join(entry.parentPath, entry.name)
  const name = relative(src, path)
  readFileSync(path, 'utf8').split('\n').forEach((line, at) => {
    for (const rule of RULES) {
      if (rule.bad.test(line) && !rule.allowed?.test(name) && !/^\s*(\/\/|\*|\/\*)/.test(line)) {
        console.error(`src/${name}:${at + 1}: ${rule.why}: ${line.trim()}`)
        failed = true
      }
    }
  })
}
if (failed) process.exit(1)
