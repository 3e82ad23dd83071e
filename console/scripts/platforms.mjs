// Checks that the lock file lists the native binary of every platform a package supports; run it after an upgrade.
// `npm install` may omit binaries of other platforms, and `npm ci` then fails on those platforms.
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'

const lock = JSON.parse(readFileSync(resolve(import.meta.dirname, '../package-lock.json'), 'utf8'))
const missing = []
for (const [path, entry] of Object.entries(lock.packages)) {
  for (const name of Object.keys(entry.optionalDependencies ?? {})) {
    const nested = lock.packages[`${path}/node_modules/${name}`]
    if (!nested && !lock.packages[`node_modules/${name}`]) missing.push(`${path || 'console'} requires ${name}`)
  }
}
if (missing.length > 0) {
  console.error(`missing in package-lock.json:\n${missing.join('\n')}`)
  process.exit(1)
}
console.log('package-lock.json lists the native binaries of every platform')
