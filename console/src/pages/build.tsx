/** The routes of this area, each with its page in `pages/build/`. */
export const buildRoutes = [] as const
