// Generates src/api/schema.d.ts from the gateway's OpenAPI document. The file is not committed, so it cannot be stale.
import { readFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import openapiTS, { astToString } from 'openapi-typescript'

const root = resolve(import.meta.dirname, '..')
const document = resolve(process.env.OPENAPI ?? resolve(root, '../target/openapi.yaml'))
try {
  // Requests may omit fields with a default, hence `defaultNonNullable: false`.
  const types = await openapiTS(readFileSync(document, 'utf8'), { alphabetize: true, defaultNonNullable: false })
  writeFileSync(resolve(root, 'src/api/schema.d.ts'), astToString(types))
} catch (error) {
  console.error(`${document} cannot be read: ${error.message}\nGenerate it with: gateway openapi > ${document}`)
  process.exit(1)
}
