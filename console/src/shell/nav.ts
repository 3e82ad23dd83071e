/** Navigation entries and their keyboard shortcuts. */
import { Activity, BookText, Boxes, Building2, ChartLine, Cog, Database, FileInput, FlaskConical, Gauge, KeyRound, LayoutDashboard, MessagesSquare, Play, Plug, ScrollText, Send, Share2, Sparkles, Users, Wallet, Waypoints, type LucideIcon } from 'lucide-react'

export interface NavItem {
  to: string
  name: string
  icon: LucideIcon
  /** Second key of the `g` shortcut. */
  key?: string
}

export interface NavGroup {
  name: string
  items: readonly NavItem[]
}

export const NAV: readonly NavGroup[] = [
  {
    name: 'Observe',
    items: [
      { to: '/', name: 'Overview', icon: LayoutDashboard, key: 'o' },
      { to: '/logs', name: 'Logs', icon: Activity, key: 'l' },
      { to: '/sessions', name: 'Sessions', icon: MessagesSquare, key: 's' },
      { to: '/usage', name: 'Usage', icon: ChartLine, key: 'u' },
    ],
  },
  {
    name: 'Build',
    items: [
      { to: '/prompts', name: 'Prompts', icon: BookText, key: 'p' },
      { to: '/playground', name: 'Playground', icon: Play, key: 'y' },
      { to: '/datasets', name: 'Datasets', icon: Database, key: 'd' },
      { to: '/evals', name: 'Evals', icon: FlaskConical, key: 'e' },
      { to: '/skills', name: 'Skills', icon: Sparkles },
    ],
  },
  {
    name: 'Connect',
    items: [
      { to: '/providers', name: 'Providers', icon: Plug },
      { to: '/models', name: 'Models', icon: Waypoints, key: 'm' },
      { to: '/keys', name: 'Keys', icon: KeyRound, key: 'k' },
      { to: '/webhooks', name: 'Webhooks', icon: Send },
      { to: '/exports', name: 'Exports', icon: Share2 },
      { to: '/import', name: 'Import', icon: FileInput },
    ],
  },
  {
    name: 'Organization',
    items: [
      { to: '/org/members', name: 'Members', icon: Users },
      { to: '/org/teams', name: 'Teams', icon: Building2 },
      { to: '/org/apps', name: 'Apps', icon: Boxes },
      { to: '/org/budgets', name: 'Budgets', icon: Wallet },
      { to: '/org/limits', name: 'Limits', icon: Gauge },
      { to: '/org/audit', name: 'Audit log', icon: ScrollText },
      { to: '/org/settings', name: 'Settings', icon: Cog },
    ],
  },
]
