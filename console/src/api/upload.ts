/** A file on its way to the server, with news of how far it is: `fetch` cannot tell that, so this is the older way. */
import { authHeaders } from './client'
import { ApiError, isRecord, OFFLINE } from './error'
import { sessionRefused } from './session'

interface Upload {
  path: string
  type: string
  body: Blob | string
  signal: AbortSignal
  /** The share that was sent, from 0 to 1. */
  onProgress(share: number): void
}

export function upload({ path, type, body, signal, onProgress }: Upload): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest()
    request.open('POST', path)
    for (const [name, value] of Object.entries({ ...authHeaders(), 'Content-Type': type })) request.setRequestHeader(name, value)
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total)
    request.upload.onload = () => onProgress(1)
    request.onerror = () => reject(new ApiError(OFFLINE, { code: 'offline', message: 'The gateway cannot be reached' }))
    request.onabort = () => reject(new DOMException('Stopped', 'AbortError'))
    request.onload = () => {
      const answer = read(request.responseText)
      if (request.status === 401) sessionRefused()
      if (request.status >= 200 && request.status < 300) resolve(answer)
      else reject(new ApiError(request.status, answer, headersOf(request)))
    }
    signal.addEventListener('abort', () => request.abort())
    request.send(body)
  })
}

function read(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : {}
  } catch {
    return {}
  }
}

function headersOf(request: XMLHttpRequest): Headers {
  const headers = new Headers()
  for (const name of ['x-request-id', 'retry-after']) {
    const value = request.getResponseHeader(name)
    if (value) headers.set(name, value)
  }
  return headers
}
