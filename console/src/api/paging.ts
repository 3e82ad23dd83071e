/** Cursor pagination options: `api.useInfiniteQuery('get', path, init, cursorPaging)`. */
export const cursorPaging = {
  pageParamName: 'cursor',
  // null omits the query parameter; undefined would become 0.
  initialPageParam: null as string | null,
  getNextPageParam: (page: { next_cursor: string | null }): string | undefined => page.next_cursor ?? undefined,
}
