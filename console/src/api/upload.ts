/** File upload with progress. Uses XMLHttpRequest because `fetch` does not report upload progress. */
import { authHeaders } from './client'
import { ApiError, isRecord, OFFLINE } from './error'
import { notifySessionExpired } from './session'

interface Upload {
  path: string
  type: string
  body: Blob | string
  signal: AbortSignal
  /** Called with the uploaded fraction, from 0 to 1. */
  onProgress(fraction: number): void
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
      const response = parseBody(request.responseText)
      if (request.status === 401) notifySessionExpired()
      if (request.status >= 200 && request.status < 300) resolve(response)
      else reject(new ApiError(request.status, response, readHeaders(request)))
    }
    signal.addEventListener('abort', () => request.abort())
    request.send(body)
  })
}

function parseBody(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : {}
  } catch {
    return {}
  }
}

function readHeaders(request: XMLHttpRequest): Headers {
  const headers = new Headers()
  for (const name of ['x-request-id', 'retry-after']) {
    const value = request.getResponseHeader(name)
    if (value) headers.set(name, value)
  }
  return headers
}
