// Writes a .br and a .gz next to each built file so that the gateway serves precompressed assets.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'

const dist = resolve(import.meta.dirname, '../dist')
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.(js|css|svg|html|json)$/.test(entry.name)) continue
  const path = join(entry.parentPath, entry.name)
  const bytes = readFileSync(path)
  // index.html gets a new CSP nonce with every response, so a compressed copy is useless.
  if (entry.name === 'index.html') continue
  writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }))
  writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }))
}
