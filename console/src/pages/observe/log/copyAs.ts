/** Exports a logged request as runnable code. The log has no key, so the code has a placeholder. */
import type { Schemas } from '@/api/client'

export type LogDetail = Schemas['LogDetail']

interface Call {
  url: string
  headers: [string, string][]
  body: string | null
}

function buildCall(log: LogDetail, origin: string): Call {
  const provider = log.attempts[0]?.provider ?? log.provider
  // Replay playground and judge requests through the public endpoint.
  const path = log.source === 'proxy' ? log.path : '/v1/chat/completions'
  const headers: [string, string][] = [
    ['X-Gateway-Key', '$GATEWAY_KEY'],
    ['X-Gateway-Provider', provider],
  ]
  if (log.session_id && !log.session_id.startsWith('auto-')) headers.push(['X-Gateway-Session', log.session_id])
  if (log.user) headers.push(['X-Gateway-User', log.user])
  const body = log.request === null ? null : typeof log.request === 'string' ? log.request : JSON.stringify(log.request)
  if (body !== null) headers.push(['Content-Type', 'application/json'])
  return { url: origin + path, headers, body }
}

export function asCurl(log: LogDetail, origin: string): string {
  const { url, headers, body } = buildCall(log, origin)
  const lines = [`curl ${log.method === 'POST' ? '' : `-X ${log.method} `}${quote(url)}`]
  for (const [name, value] of headers) lines.push(value.startsWith('$') ? `-H "${name}: ${value}"` : `-H ${quote(`${name}: ${value}`)}`)
  if (body !== null) lines.push(`-d ${quote(body)}`)
  return lines.join(' \\\n  ')
}

export function asPython(log: LogDetail, origin: string): string {
  const { url, headers, body } = buildCall(log, origin)
  const named = headers.map(([name, value]) => `    ${JSON.stringify(name)}: ${value.startsWith('$') ? `os.environ["${value.slice(1)}"]` : JSON.stringify(value)},`)
  // Escape quotes as \u0027 so that the content cannot end the string literal.
  const data = body === null ? 'None' : `r'''${body.replaceAll("'", '\\u0027')}'''.encode()`
  return ['import os', 'import urllib.request', '', `request = urllib.request.Request(`, `    ${JSON.stringify(url)},`, `    method=${JSON.stringify(log.method)},`, `    headers={`, ...named.map((line) => `    ${line}`), `    },`, `    data=${data},`, `)`, `print(urllib.request.urlopen(request).read().decode())`].join('\n')
}

/** Single-quotes a shell argument. */
function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
