/** Headers as people write them: one per line, `Name: value`. Lines without a colon are left out. */
export function headersOf(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.includes(':'))
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf(':')).trim(), line.slice(line.indexOf(':') + 1).trim()]))
}
