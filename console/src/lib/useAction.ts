import { useState } from 'react'
import { asApiError, type ApiError } from '../api/error'

export interface Action<Args extends unknown[]> {
  run: (...args: Args) => void
  busy: boolean
  error: ApiError | null
  /** Messages by the field that they are about. */
  fields: Record<string, string>
  reset: () => void
}

/** Something that a person starts: one at a time, with what came of it. */
export function useAction<Args extends unknown[]>(work: (...args: Args) => Promise<unknown>): Action<Args> {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<ApiError | null>(null)
  const run = (...args: Args): void => {
    if (busy) return
    setBusy(true)
    setError(null)
    work(...args)
      .catch((failure: unknown) => setError(asApiError(failure)))
      .finally(() => setBusy(false))
  }
  return { run, busy, error, fields: error?.fields ?? {}, reset: () => setError(null) }
}
