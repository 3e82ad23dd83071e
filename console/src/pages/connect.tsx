/** The routes of this area, each with its page in `pages/connect/`. */
export const connectRoutes = [] as const
