// Lint rules that the compiler cannot enforce: no fetch outside the typed client, no raw HTML, no untyped values.
import { readFileSync, readdirSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'

const src = resolve(import.meta.dirname, '../src')
const RULES = [
  { forbidden: /\bfetch\(/, allowed: /^(api\/|lib\/sse\.ts$)/, message: 'use src/api or src/lib/sse.ts for requests' },
  { forbidden: /dangerouslySetInnerHTML|\.innerHTML|insertAdjacentHTML|document\.write/, message: 'raw HTML is not allowed' },
  { forbidden: /(:|\bas|<)\s*any\b/, message: 'any is not allowed' },
  { forbidden: /@ts-(ignore|nocheck|expect-error)/, message: 'type error suppressions are not allowed' },
  { forbidden: /\b(sessionStorage|indexedDB|document\.cookie)\b/, message: 'use localStorage, and only for the session, preferences and drafts' },
]
let failed = false
for (const entry of readdirSync(src, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.tsx?$/.test(entry.name) || entry.name === 'schema.d.ts') continue
  const path = join(entry.parentPath, entry.name)
  const name = relative(src, path)
  readFileSync(path, 'utf8').split('\n').forEach((line, at) => {
    for (const rule of RULES) {
      if (rule.forbidden.test(line) && !rule.allowed?.test(name) && !/^\s*(\/\/|\*|\/\*)/.test(line)) {
        console.error(`src/${name}:${at + 1}: ${rule.message}: ${line.trim()}`)
        failed = true
      }
    }
  })
}
if (failed) process.exit(1)
