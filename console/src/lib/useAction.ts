import { useState } from 'react'
import { asApiError, type ApiError } from '../api/error'

export interface Action<Args extends unknown[]> {
  run: (...args: Args) => void
  busy: boolean
  error: ApiError | null
  /** Error messages by field name. */
  fields: Record<string, string>
  reset: () => void
}

/** Runs an async user action, one at a time, and exposes busy state and error. */
export function useAction<Args extends unknown[]>(perform: (...args: Args) => Promise<unknown>): Action<Args> {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<ApiError | null>(null)
  const run = (...args: Args): void => {
    if (busy) return
    setBusy(true)
    setError(null)
    perform(...args)
      .catch((failure: unknown) => setError(asApiError(failure)))
      .finally(() => setBusy(false))
  }
  return { run, busy, error, fields: error?.fields ?? {}, reset: () => setError(null) }
}
