// Writes a .br and a .gz beside each built file, so that the gateway never compresses while serving.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'

const dist = resolve(import.meta.dirname, '../dist')
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.(js|css|svg|html|json)$/.test(entry.name)) continue
  const path = join(entry.parentPath, entry.name)
  const bytes = readFileSync(path)
  // The page is rewritten for every answer (its nonce), so a packed copy of it would be of no use.
  if (entry.name === 'index.html') continue
  writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }))
  writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }))
}
