/** Typed API client: types come from the OpenAPI document, every request carries the token, failures are `ApiError`. */
import createFetchClient, { type Middleware } from 'openapi-fetch'
import createQueryClient from 'openapi-react-query'
import { ApiError, OFFLINE, errorFrom } from './error'
import type { components, paths } from './schema'
import { getSession, notifySessionExpired } from './session'

export type Schemas = components['schemas']

const PUBLIC_PATHS = new Set(['/api/v1/login', '/api/v1/signup', '/api/v1/setup', '/api/v1/auth/reset'])

const middleware: Middleware = {
  onRequest({ request, schemaPath }) {
    // The audit log shows what was done in the console.
    request.headers.set('X-Gateway-Client', 'console')
    for (const [name, value] of Object.entries(authHeaders())) {
      if (!PUBLIC_PATHS.has(schemaPath)) request.headers.set(name, value)
    }
    return request
  },
  async onResponse({ response, schemaPath }) {
    if (response.ok) return
    if (response.status === 401 && !PUBLIC_PATHS.has(schemaPath)) notifySessionExpired()
    throw await errorFrom(response)
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === 'AbortError') return error
    return new ApiError(OFFLINE, { code: 'offline', message: 'The gateway cannot be reached' })
  },
}

export const client = createFetchClient<paths>({ baseUrl: globalThis.location?.origin ?? '' })
client.use(middleware)

/** React hooks: `api.useQuery('get', '/api/v1/logs', …)`. Errors are always of type `ApiError`. */
export const api = createQueryClient(client)

/** Authorization header for requests outside the typed client: event streams and file uploads. */
export function authHeaders(): Record<string, string> {
  const token = getSession()?.token
  return token ? { Authorization: `Bearer ${token}` } : {}
}

/** Returns the response body of a call made outside hooks. The middleware has already thrown on an error status. */
export async function unwrap<T>(call: Promise<{ data?: T }>): Promise<T> {
  const { data } = await call
  if (data === undefined) throw new ApiError(OFFLINE, { code: 'unexpected', message: 'The response was empty' })
  return data
}
