/** Why a request failed: the message of the provider or of the gateway, parsed. */
import type { components } from '@/api/schema'
import { isRecord } from '@/api/error'
import { isFailed } from './failureState'

export { isFailed }

type LogRow = components['schemas']['LogRow']

export interface Failure {
  message: string
  /** Type or code of the error in the body, such as `rate_limit_exceeded`. */
  code: string | null
}

/** The failure of a list row: the last attempt's message, or the error code. Null if the request succeeded. */
export function failureOf(row: Pick<LogRow, 'status' | 'error_code' | 'attempts'>): Failure | null {
  if (!isFailed(row)) return null
  const last = row.attempts.findLast((attempt) => attempt.error !== null)?.error
  const parsed = last ? parseFailure(last) : null
  return parsed ?? { message: row.error_code ? sentence(row.error_code) : `Status ${row.status}`, code: row.error_code }
}

/** The failure of a request with its response body, which has the message in full. */
export function detailedFailure(log: Pick<LogRow, 'status' | 'error_code' | 'attempts'> & { response: unknown }): Failure | null {
  if (!isFailed(log)) return null
  const body = typeof log.response === 'string' ? parseFailure(log.response) : bodyFailure(log.response)
  return body ?? failureOf(log)
}

/** Finds the message in a text that is or contains a JSON error body. */
export function parseFailure(text: string): Failure | null {
  const from = text.search(/[{[]/)
  if (from >= 0) {
    try {
      const found = bodyFailure(JSON.parse(text.slice(from)))
      if (found) return found
    } catch {
      // The text was cut, or is not valid JSON: look for the message in what there is.
      const message = /"message"\s*:\s*"((?:[^"\\]|\\.)*)/.exec(text)?.[1]
      if (message) return { message: unescapeJson(message), code: null }
    }
  }
  const plain = text.trim()
  return plain === '' ? null : { message: plain, code: null }
}

/** Error bodies of OpenAI, Anthropic, Google, Cohere and this gateway. */
function bodyFailure(body: unknown): Failure | null {
  if (Array.isArray(body)) return bodyFailure(body[0])
  if (!isRecord(body)) return null
  const inner = isRecord(body['error']) ? body['error'] : body
  const message = [inner['message'], body['error'], body['detail'], body['message']].find((one): one is string => typeof one === 'string' && one !== '')
  if (!message) return null
  const code = [inner['code'], inner['type'], inner['status'], body['code'], body['error_code']].find((one): one is string => typeof one === 'string' && one !== '')
  const nested = message.trimStart().startsWith('{') ? parseFailure(message) : null
  return nested ?? { message, code: code ?? null }
}

function unescapeJson(text: string): string {
  try {
    return JSON.parse(`"${text}"`) as string
  } catch {
    return text
  }
}

function sentence(code: string): string {
  const words = code.replaceAll('_', ' ')
  return words.charAt(0).toUpperCase() + words.slice(1)
}
