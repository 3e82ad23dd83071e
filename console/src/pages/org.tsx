/** The routes of this area, each with its page in `pages/org/`. */
export const orgRoutes = [] as const
