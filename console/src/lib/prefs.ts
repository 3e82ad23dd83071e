/** User preferences, stored in localStorage. */
import { useSyncExternalStore } from 'react'

import type { Zone } from './format'

export type Density = 'comfortable' | 'compact' | 'dense'

export interface Prefs {
  theme: 'system' | 'light' | 'dark'
  zone: Zone
  density: Density
  nav: 'open' | 'closed'
  drawerWidth: number
  /** The logs table of each user of this browser. */
  logs: Readonly<Record<string, LogsPrefs>>
}

/** A stored view of the logs: the search parameters of its address. */
export interface SavedView {
  name: string
  search: Readonly<Record<string, string>>
}

export interface LogsPrefs {
  /** Columns that the user switched on or off. */
  columns: Readonly<Record<string, boolean>>
  /** Widths in pixels that the user set. */
  widths: Readonly<Record<string, number>>
  facets: 'open' | 'closed'
  /** Views by organization. */
  views: Readonly<Record<string, readonly SavedView[]>>
}
export const DEFAULT_LOGS_PREFS: LogsPrefs = { columns: {}, widths: {}, facets: 'open', views: {} }

export const ROW_HEIGHT: Record<Density, number> = { comfortable: 36, compact: 30, dense: 26 }

const PREFS_KEY = 'console.prefs'
const DEFAULTS: Prefs = { theme: 'system', zone: 'local', density: 'compact', nav: 'open', drawerWidth: 560, logs: {} }
const listeners = new Set<() => void>()
let prefs: Prefs = load()

// Preferences changed in another tab.
globalThis.addEventListener?.('storage', (event) => {
  if (event.key === PREFS_KEY) applyPrefs(load())
})

export function usePrefs(): Prefs {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => prefs,
  )
}

export function setPrefs(change: Partial<Prefs>): void {
  const next = { ...prefs, ...change }
  localStorage.setItem(PREFS_KEY, JSON.stringify(next))
  applyPrefs(next)
}

/** The logs table of this user, and a function that changes it. */
export function useLogsPrefs(userId: string): [LogsPrefs, (change: Partial<LogsPrefs>) => void] {
  const { logs } = usePrefs()
  const mine = { ...DEFAULT_LOGS_PREFS, ...logs[userId] }
  return [mine, (change) => setPrefs({ logs: { ...prefs.logs, [userId]: { ...DEFAULT_LOGS_PREFS, ...prefs.logs[userId], ...change } } })]
}

export function cycleTheme(): void {
  const order: Prefs['theme'][] = ['system', 'light', 'dark']
  setPrefs({ theme: order[(order.indexOf(prefs.theme) + 1) % order.length] ?? 'system' })
}

function applyPrefs(next: Prefs): void {
  prefs = next
  document.documentElement.dataset['theme'] = next.theme
  for (const listener of listeners) listener()
}

function load(): Prefs {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(PREFS_KEY) ?? '{}') as Partial<Prefs>) }
  } catch {
    return DEFAULTS
  }
}
