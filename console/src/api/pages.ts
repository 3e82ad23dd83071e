/** Lists come in pages with a cursor to the next one: `api.useInfiniteQuery('get', path, init, inPages)`. */
export const inPages = {
  pageParamName: 'cursor',
  initialPageParam: undefined as string | undefined,
  getNextPageParam: (page: { next_cursor: string | null }): string | undefined => page.next_cursor ?? undefined,
}
