// Fails the build when a part of the console grows beyond what it may weigh. Sizes are KB after gzip.
import { readFileSync, readdirSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { gzipSync } from 'node:zlib'

const BUDGET = { entry: 125, firstScripts: 180, css: 15, route: 60, editor: 115, markdown: 55, whole: 700 }

const dist = resolve(import.meta.dirname, '../dist')
const manifest = JSON.parse(readFileSync(join(dist, '.vite/manifest.json'), 'utf8'))
const weigh = (file) => gzipSync(readFileSync(join(dist, file)), { level: 9 }).length / 1024
const problems = []
const check = (what, size, limit) => {
  if (size > limit) problems.push(`${what} weighs ${size.toFixed(1)} KB, ${limit} KB are allowed`)
}

/** A chunk's own file and everything it loads together with it. */
const closure = (key, seen = new Set()) => {
  if (seen.has(key)) return seen
  seen.add(key)
  for (const next of manifest[key].imports ?? []) closure(next, seen)
  return seen
}

const chunks = Object.entries(manifest).filter(([, chunk]) => chunk.file.endsWith('.js'))
const entryKey = chunks.find(([, chunk]) => chunk.isEntry)[0]
const entry = closure(entryKey)
const total = (keys) => [...keys].reduce((sum, key) => sum + weigh(manifest[key].file), 0)

const css = readdirSync(join(dist, 'assets')).filter((name) => name.endsWith('.css'))
const cssSize = css.reduce((sum, name) => sum + weigh(`assets/${name}`), 0)
const shell = closure(chunks.find(([key]) => key.endsWith('shell/Shell.tsx'))?.[0] ?? entryKey)
const first = closure(chunks.find(([key]) => key.endsWith('observe/Overview.tsx'))?.[0] ?? entryKey)
const firstSize = total(new Set([...entry, ...shell, ...first]))

check('the entry', total(entry), BUDGET.entry)
check('all styles', cssSize, BUDGET.css)
check('JavaScript of the first page', firstSize, BUDGET.firstScripts)
for (const [key, chunk] of chunks) {
  if (chunk.isEntry) continue
  const limit = /codemirror|\/Editor/i.test(key) ? BUDGET.editor : /markdown/i.test(key) ? BUDGET.markdown : BUDGET.route
  check(key, weigh(chunk.file), limit)
}
const whole = readdirSync(dist, { recursive: true, withFileTypes: true })
  .filter((file) => file.isFile() && !/\.(br|gz)$|^manifest\.json$/.test(file.name))
  .reduce((sum, file) => sum + gzipSync(readFileSync(join(file.parentPath, file.name))).length / 1024, 0)
check('the whole console', whole, BUDGET.whole)

console.log(
  `console: entry ${total(entry).toFixed(1)} KB, first page ${firstSize.toFixed(1)} KB, styles ${cssSize.toFixed(1)} KB, all ${whole.toFixed(1)} KB (gzip)`,
)
// Only this script needs it; it is not to be served.
rmSync(join(dist, '.vite'), { recursive: true })
if (problems.length > 0) {
  console.error(problems.join('\n'))
  process.exit(1)
}
