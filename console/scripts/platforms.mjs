// Before a dependency is bumped: does the lock file name a native binary for every platform that its package wants?
// `npm install` on one platform leaves out what the registry does not have, and `npm ci` then fails elsewhere.
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'

const lock = JSON.parse(readFileSync(resolve(import.meta.dirname, '../package-lock.json'), 'utf8'))
const missing = []
for (const [path, entry] of Object.entries(lock.packages)) {
  for (const name of Object.keys(entry.optionalDependencies ?? {})) {
    const nested = lock.packages[`${path}/node_modules/${name}`]
    if (!nested && !lock.packages[`node_modules/${name}`]) missing.push(`${path || 'console'} wants ${name}`)
  }
}
if (missing.length > 0) {
  console.error(`missing in package-lock.json:\n${missing.join('\n')}`)
  process.exit(1)
}
console.log('every platform has its binaries')
