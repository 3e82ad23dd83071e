/** Parses headers, one `Name: value` per line. Lines without a colon are skipped. */
export function parseHeaders(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.includes(':'))
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf(':')).trim(), line.slice(line.indexOf(':') + 1).trim()]))
}
