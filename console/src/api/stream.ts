/** Responses that are read while they arrive. The typed client reads them to the end. */
import { authHeaders } from './client'
import { ApiError, errorFrom, OFFLINE } from './error'
import { notifySessionExpired } from './session'

/** The body of a successful response. Rejects with the error of the API, or with that of the signal if it was stopped. */
export async function openStream(path: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  let response: Response
  try {
    response = await fetch(path, { headers: { ...authHeaders(), 'X-Gateway-Client': 'console' }, signal })
  } catch (error) {
    throw signal.aborted ? error : new ApiError(OFFLINE, { code: 'offline', message: 'The gateway cannot be reached' })
  }
  if (response.status === 401) notifySessionExpired()
  if (!response.ok) throw await errorFrom(response)
  if (!response.body) throw new ApiError(OFFLINE, { code: 'unexpected', message: 'The response was empty' })
  return response.body
}
