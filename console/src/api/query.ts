import { QueryClient } from '@tanstack/react-query'
import { ApiError } from './error'
import { getSession, subscribe } from './session'

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      // Retry only transient errors: unreachable server and 5xx.
      retry: (count, error) => count < 2 && error instanceof ApiError && (error.status === 0 || error.status >= 500),
      retryDelay: (count) => 500 * 2 ** count,
    },
  },
})

// Cached data must not leak into another organization or to the next user of this browser.
let previous = getSession()
subscribe(() => {
  const session = getSession()
  const isSameTenant = session?.orgId === previous?.orgId && session?.userId === previous?.userId
  previous = session
  if (isSameTenant) return
  if (!session) {
    queryClient.clear()
    return
  }
  // Drop queries that name the old organization; refetch the rest for the new one.
  queryClient.removeQueries({ predicate: ({ queryKey }) => (orgIdOf(queryKey) ?? session.orgId) !== session.orgId })
  void queryClient.resetQueries()
})

/** The organization id in the path of a query, if any. */
function orgIdOf([, , init]: readonly unknown[]): string | undefined {
  return (init as { params?: { path?: { orgId?: string } } } | undefined)?.params?.path?.orgId
}

/** Invalidates all queries whose path starts with one of `paths`. */
export function invalidate(...paths: string[]): Promise<void> {
  return queryClient.invalidateQueries({
    predicate: ({ queryKey: [, path] }) => typeof path === 'string' && paths.some((prefix) => path.startsWith(prefix)),
  })
}

/** Query options for polling. Previous data stays visible during a refetch. */
export function pollingOptions(intervalMs = 15_000) {
  return { refetchInterval: intervalMs, placeholderData: <T>(before: T | undefined) => before, meta: { quiet: true } }
}
