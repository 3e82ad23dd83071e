/** What a call can fail with. The API has two error shapes; here they are one. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly requestId: string | null
  /** Seconds until it is worth another try, when the server said so. */
  readonly retryAfter: number | null
  /** Messages by the field that they are about. */
  readonly fields: Record<string, string>
  /** Whatever else the body carried: rows of an import, a line and a column, missing variables. */
  readonly details: Record<string, unknown>

  constructor(status: number, body: Record<string, unknown>, headers?: Headers) {
    const text = firstString(body['message'], body['error']) ?? `The server answered ${status}`
    super(text)
    this.name = 'ApiError'
    this.status = status
    this.code = firstString(body['code'], body['error_code']) ?? 'unknown'
    this.requestId = headers?.get('x-request-id') ?? null
    const wait = Number(headers?.get('retry-after') ?? Number.NaN)
    this.retryAfter = Number.isFinite(wait) ? wait : null
    this.fields = fieldsOf(text)
    this.details = body
  }
}

/** The server could not be reached at all. */
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

function firstString(...candidates: unknown[]): string | null {
  return candidates.find((candidate): candidate is string => typeof candidate === 'string' && candidate !== '') ?? null
}

/** The server names the field first: `email: must be an email address`. */
function fieldsOf(message: string): Record<string, string> {
  const match = /^([a-z_][\w.[\]]*): (.+)$/s.exec(message)
  return match?.[1] && match[2] ? { [match[1]]: match[2] } : {}
}
