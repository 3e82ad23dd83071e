/** Lists come in pages with a cursor to the next one: `api.useInfiniteQuery('get', path, init, inPages)`. */
export const inPages = {
  pageParamName: 'cursor',
  // Null is left out of the query; undefined would become 0.
  initialPageParam: null as string | null,
  getNextPageParam: (page: { next_cursor: string | null }): string | undefined => page.next_cursor ?? undefined,
}
