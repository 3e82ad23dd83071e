/** Navigation entries and their keyboard shortcuts. */
import { Activity, BellRing, Blocks, BookText, Boxes, Building2, ChartLine, Cog, Database, FileInput, FlaskConical, Gauge, KeyRound, LayoutDashboard, MessagesSquare, Play, Plug, Repeat, ScrollText, Send, Share2, Sparkles, Users, Wallet, Waypoints, type LucideIcon } from 'lucide-react'

export interface NavItem {
  to: string
  name: string
  icon: LucideIcon
  /** Second key of the `g` shortcut. */
  key?: string
  /** Page of the documentation. */
  docs: string
}

export interface NavGroup {
  name: string
  items: readonly NavItem[]
}

export const NAV: readonly NavGroup[] = [
  {
    name: 'Observe',
    items: [
      { to: '/', name: 'Overview', icon: LayoutDashboard, key: 'o', docs: 'concepts' },
      { to: '/logs', name: 'Logs', icon: Activity, key: 'l', docs: 'logs' },
      { to: '/sessions', name: 'Sessions', icon: MessagesSquare, key: 's', docs: 'logs' },
      { to: '/usage', name: 'Usage', icon: ChartLine, key: 'u', docs: 'logs' },
      { to: '/alerts', name: 'Alerts', icon: BellRing, key: 'a', docs: 'alerts' },
    ],
  },
  {
    name: 'Build',
    items: [
      { to: '/prompts', name: 'Prompts', icon: BookText, key: 'p', docs: 'prompts' },
      { to: '/playground', name: 'Playground', icon: Play, key: 'y', docs: 'playground' },
      { to: '/datasets', name: 'Datasets', icon: Database, key: 'd', docs: 'datasets' },
      { to: '/evals', name: 'Evals', icon: FlaskConical, key: 'e', docs: 'evals' },
      { to: '/replays', name: 'Replay', icon: Repeat, key: 'r', docs: 'replay' },
      { to: '/skills', name: 'Skills', icon: Sparkles, docs: 'skills' },
    ],
  },
  {
    name: 'Connect',
    items: [
      { to: '/providers', name: 'Providers', icon: Plug, docs: 'providers/' },
      { to: '/models', name: 'Models', icon: Waypoints, key: 'm', docs: 'models' },
      { to: '/mcp', name: 'MCP servers', icon: Blocks, docs: 'mcp' },
      { to: '/keys', name: 'Keys', icon: KeyRound, key: 'k', docs: 'access' },
      { to: '/webhooks', name: 'Webhooks', icon: Send, docs: 'webhooks' },
      { to: '/exports', name: 'Exports', icon: Share2, docs: 'exports' },
      { to: '/import', name: 'Import', icon: FileInput, docs: 'switching' },
    ],
  },
  {
    name: 'Organization',
    items: [
      { to: '/org/members', name: 'Members', icon: Users, docs: 'access' },
      { to: '/org/teams', name: 'Teams', icon: Building2, docs: 'access' },
      { to: '/org/apps', name: 'Applications', icon: Boxes, docs: 'access' },
      { to: '/org/budgets', name: 'Budgets', icon: Wallet, docs: 'budgets' },
      { to: '/org/limits', name: 'Limits', icon: Gauge, docs: 'limits' },
      { to: '/org/audit', name: 'Audit log', icon: ScrollText, docs: 'audit' },
      { to: '/org/settings', name: 'Settings', icon: Cog, docs: 'access' },
    ],
  },
]

/** Pages that the navigation does not list. */
const OTHER_DOCS: Readonly<Record<string, string>> = { '/account': 'access', '/shelf': 'skills' }

/** The documentation of the page at this path, or the quick start. */
export function docsOf(path: string): string {
  const items = NAV.flatMap((group) => group.items)
  const found = items.find(({ to }) => path === to || (to !== '/' && path.startsWith(`${to}/`)))
  return `/console/docs/${found?.docs ?? OTHER_DOCS[path] ?? 'quick-start'}`
}
