/** The one way to the API: types from the OpenAPI document, the token on every request, one error type. */
import createFetchClient, { type Middleware } from 'openapi-fetch'
import createQueryClient from 'openapi-react-query'
import { ApiError, OFFLINE, errorFrom } from './error'
import type { components, paths } from './schema'
import { getSession, sessionRefused } from './session'

export type Schemas = components['schemas']

const PUBLIC = new Set(['/api/v1/login', '/api/v1/signup', '/api/v1/setup'])

const middleware: Middleware = {
  onRequest({ request, schemaPath }) {
    for (const [name, value] of Object.entries(authHeaders())) {
      if (!PUBLIC.has(schemaPath)) request.headers.set(name, value)
    }
    return request
  },
  async onResponse({ response, schemaPath }) {
    if (response.ok) return
    if (response.status === 401 && !PUBLIC.has(schemaPath)) sessionRefused()
    throw await errorFrom(response)
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === 'AbortError') return error
    return new ApiError(OFFLINE, { code: 'offline', message: 'The gateway cannot be reached' })
  },
}

export const client = createFetchClient<paths>({ baseUrl: globalThis.location?.origin ?? '' })
client.use(middleware)

/** Hooks: `api.useQuery('get', '/api/v1/logs', …)`. Failures are always `ApiError`s. */
export const api = createQueryClient(client)

/** For what the typed client cannot carry: event streams, files. */
export function authHeaders(): Record<string, string> {
  const token = getSession()?.token
  return token ? { Authorization: `Bearer ${token}` } : {}
}

/** The body of an answer, for calls outside of hooks; the middleware has thrown already when it failed. */
export async function take<T>(call: Promise<{ data?: T }>): Promise<T> {
  const { data } = await call
  if (data === undefined) throw new ApiError(OFFLINE, { code: 'unexpected', message: 'The answer was empty' })
  return data
}
