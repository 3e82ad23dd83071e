/** A logged request as something that can be run again. The key is not in the log, so it is left to be filled in. */
import type { Schemas } from '@/api/client'

export type LogDetail = Schemas['LogDetail']

interface Call {
  url: string
  headers: [string, string][]
  body: string | null
}

function callOf(log: LogDetail, origin: string): Call {
  const provider = log.attempts[0]?.provider ?? log.provider
  // What the playground and judges sent is asked again at the address that everybody uses.
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
  const { url, headers, body } = callOf(log, origin)
  const lines = [`curl ${log.method === 'POST' ? '' : `-X ${log.method} `}${quote(url)}`]
  for (const [name, value] of headers) lines.push(value.startsWith('$') ? `-H "${name}: ${value}"` : `-H ${quote(`${name}: ${value}`)}`)
  if (body !== null) lines.push(`-d ${quote(body)}`)
  return lines.join(' \\\n  ')
}

export function asPython(log: LogDetail, origin: string): string {
  const { url, headers, body } = callOf(log, origin)
  const named = headers.map(([name, value]) => `    ${JSON.stringify(name)}: ${value.startsWith('$') ? `os.environ["${value.slice(1)}"]` : JSON.stringify(value)},`)
  // In JSON a quote may be written as its number, so no text can end the literal early.
  const data = body === null ? 'None' : `r'''${body.replaceAll("'", '\\u0027')}'''.encode()`
  return ['import os', 'import urllib.request', '', `request = urllib.request.Request(`, `    ${JSON.stringify(url)},`, `    method=${JSON.stringify(log.method)},`, `    headers={`, ...named.map((line) => `    ${line}`), `    },`, `    data=${data},`, `)`, `print(urllib.request.urlopen(request).read().decode())`].join('\n')
}

/** In single quotes the shell leaves everything alone but the quote itself. */
function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
