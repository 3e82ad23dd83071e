// Bundle size budget: fails the build when a chunk exceeds its limit. Sizes are KB after gzip.
import { readFileSync, readdirSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { gzipSync } from 'node:zlib'

const LIMITS_KB = { entry: 125, firstScripts: 180, css: 15, route: 60, editor: 115, markdown: 55, allFiles: 700 }

const dist = resolve(import.meta.dirname, '../dist')
const manifest = JSON.parse(readFileSync(join(dist, '.vite/manifest.json'), 'utf8'))
const gzipSize = (file) => gzipSync(readFileSync(join(dist, file)), { level: 9 }).length / 1024
const problems = []
const check = (name, size, limit) => {
  if (size > limit) problems.push(`${name} is ${size.toFixed(1)} KB, the limit is ${limit} KB`)
}

/** A chunk and its static imports, transitively. */
const closure = (key, visited = new Set()) => {
  if (visited.has(key)) return visited
  visited.add(key)
  for (const next of manifest[key].imports ?? []) closure(next, visited)
  return visited
}

const chunks = Object.entries(manifest).filter(([, chunk]) => chunk.file.endsWith('.js'))
const entryKey = chunks.find(([, chunk]) => chunk.isEntry)[0]
const entry = closure(entryKey)
const total = (keys) => [...keys].reduce((sum, key) => sum + gzipSize(manifest[key].file), 0)

const css = readdirSync(join(dist, 'assets')).filter((name) => name.endsWith('.css'))
const cssSize = css.reduce((sum, name) => sum + gzipSize(`assets/${name}`), 0)
const shell = closure(chunks.find(([key]) => key.endsWith('shell/Shell.tsx'))?.[0] ?? entryKey)
const first = closure(chunks.find(([key]) => key.endsWith('observe/Overview.tsx'))?.[0] ?? entryKey)
const firstSize = total(new Set([...entry, ...shell, ...first]))

check('entry', total(entry), LIMITS_KB.entry)
check('styles', cssSize, LIMITS_KB.css)
check('first page JavaScript', firstSize, LIMITS_KB.firstScripts)
for (const [key, chunk] of chunks) {
  if (chunk.isEntry) continue
  const limit = /codemirror|\/Editor/i.test(key) ? LIMITS_KB.editor : /markdown/i.test(key) ? LIMITS_KB.markdown : LIMITS_KB.route
  check(key, gzipSize(chunk.file), limit)
}
const allFiles = readdirSync(dist, { recursive: true, withFileTypes: true })
  .filter((file) => file.isFile() && !/\.(br|gz)$|^manifest\.json$/.test(file.name))
  .reduce((sum, file) => sum + gzipSync(readFileSync(join(file.parentPath, file.name))).length / 1024, 0)
check('all files', allFiles, LIMITS_KB.allFiles)

console.log(
  `console: entry ${total(entry).toFixed(1)} KB, first page ${firstSize.toFixed(1)} KB, styles ${cssSize.toFixed(1)} KB, all ${allFiles.toFixed(1)} KB (gzip)`,
)
// Only this script reads the manifest; do not serve it.
rmSync(join(dist, '.vite'), { recursive: true })
if (problems.length > 0) {
  console.error(problems.join('\n'))
  process.exit(1)
}
