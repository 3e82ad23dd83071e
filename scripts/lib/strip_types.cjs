// Turns TypeScript into JavaScript: node strip_types.cjs SOURCE TARGET. Types are removed and not checked; a source map keeps
// the lines of error messages. NODE_PATH names the directory with the package `typescript`.
const { readFileSync, writeFileSync } = require('node:fs')
const ts = require('typescript')

const [source, target] = process.argv.slice(2)
const { outputText, diagnostics } = ts.transpileModule(readFileSync(source, 'utf8'), {
  fileName: source,
  reportDiagnostics: true,
  compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, inlineSourceMap: true, inlineSources: true },
})
if (diagnostics.length > 0) {
  const host = { getCurrentDirectory: () => '', getCanonicalFileName: (name) => name, getNewLine: () => '\n' }
  console.error(ts.formatDiagnostics(diagnostics, host))
  process.exit(1)
}
writeFileSync(target, outputText)
