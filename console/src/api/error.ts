/** Error of an API call. Normalizes the two error formats of the API. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly requestId: string | null
  /** Seconds to wait before a retry, from the `Retry-After` header. */
  readonly retryAfter: number | null
  /** The log row of a failed model call. */
  readonly logId: number | null
  /** Error messages by field name. */
  readonly fields: Record<string, string>
  /** The whole error body, e.g. invalid import rows, line and column, or missing variables. */
  readonly details: Record<string, unknown>

  constructor(status: number, body: Record<string, unknown>, headers?: Headers) {
    const text = firstString(body['message'], body['error']) ?? `The server answered ${status}`
    super(text)
    this.name = 'ApiError'
    this.status = status
    this.code = firstString(body['code'], body['error_code']) ?? 'unknown'
    this.requestId = headers?.get('x-request-id') ?? null
    this.retryAfter = numberOf(headers?.get('retry-after'))
    this.logId = numberOf(headers?.get('x-gateway-log-id'))
    this.fields = parseFieldErrors(text)
    this.details = body
  }
}

/** Status of an error without a response: the server is unreachable. */
export const OFFLINE = 0

export async function errorFrom(response: Response): Promise<ApiError> {
  const body: unknown = await response
    .clone()
    .json()
    .catch(() => null)
  return new ApiError(response.status, isRecord(body) ? body : {}, response.headers)
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  const message = error instanceof Error ? error.message : String(error)
  return new ApiError(OFFLINE, { code: 'unexpected', message })
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function numberOf(header: string | null | undefined): number | null {
  const number = Number(header ?? Number.NaN)
  return Number.isFinite(number) ? number : null
}

function firstString(...candidates: unknown[]): string | null {
  return candidates.find((candidate): candidate is string => typeof candidate === 'string' && candidate !== '') ?? null
}

/** The server prefixes a message with the field: `email: must be an email address`, `query.metadata.plan.$in: must be a list`. */
function parseFieldErrors(message: string): Record<string, string> {
  const match = /^([a-z_][\w.$[\]-]*): (.+)$/s.exec(message)
  return match?.[1] && match[2] ? { [match[1]]: match[2] } : {}
}
