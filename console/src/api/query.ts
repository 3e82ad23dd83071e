import { QueryClient } from '@tanstack/react-query'
import { ApiError } from './error'
import { getSession, subscribe } from './session'

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      // Only what may be better a moment later is asked again by itself; the rest is shown.
      retry: (count, error) => count < 2 && error instanceof ApiError && (error.status === 0 || error.status >= 500),
      retryDelay: (count) => 500 * 2 ** count,
    },
  },
})

// What one organization was shown must not be seen in another, nor by the next user of this browser.
let seen = getSession()
subscribe(() => {
  const now = getSession()
  const same = now?.orgId === seen?.orgId && now?.userId === seen?.userId
  seen = now
  if (same) return
  if (!now) {
    queryClient.clear()
    return
  }
  // The page that is open asks about the new organization by itself; about the old one there is nothing to learn.
  queryClient.removeQueries({ predicate: ({ queryKey }) => (orgOf(queryKey) ?? now.orgId) !== now.orgId })
  void queryClient.resetQueries()
})

/** The organization that a question names in its path. */
function orgOf([, , init]: readonly unknown[]): string | undefined {
  return (init as { params?: { path?: { orgId?: string } } } | undefined)?.params?.path?.orgId
}

/** Everything that was asked of these paths is asked again. */
export function refresh(...paths: string[]): Promise<void> {
  return queryClient.invalidateQueries({
    predicate: ({ queryKey: [, path] }) => typeof path === 'string' && paths.some((prefix) => path.startsWith(prefix)),
  })
}

/** For what should be seen soon after it happens: asked again while the tab is seen, and what is there stays meanwhile. */
export function polled(every = 15_000) {
  return { refetchInterval: every, placeholderData: <T>(before: T | undefined) => before, meta: { quiet: true } }
}
