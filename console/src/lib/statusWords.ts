/** What statuses of the gateway and of providers mean, for lists of numbers. */
const WORDS: Readonly<Record<string, string>> = {
  '200': 'ok',
  '400': 'bad request',
  '401': 'not authorized',
  '402': 'payment required',
  '403': 'forbidden',
  '404': 'not found',
  '408': 'request timeout',
  '413': 'too large',
  '422': 'not valid',
  '429': 'rate limited',
  '499': 'client disconnected',
  '500': 'server error',
  '502': 'provider error',
  '503': 'unavailable',
  '504': 'provider timeout',
  '529': 'overloaded',
  '2xx': 'successful status',
  '4xx': 'refused',
  '5xx': 'failed',
  error: 'all errors, also inside a 200',
  ok: 'no error',
}

export function statusWord(status: string | number): string | undefined {
  return WORDS[String(status)]
}

/** `429 rate limited`, or the number alone. */
export function statusText(status: string | number): string {
  const word = statusWord(status)
  return word === undefined ? String(status) : `${status} ${word}`
}
