/** Tabs of the log drawer, in the order of their shortcut keys. */
export const LOG_TABS = ['conversation', 'timing', 'cost', 'evals', 'details', 'raw'] as const
export type LogTab = (typeof LOG_TABS)[number]
