import { Link } from '@tanstack/react-router'
import { BookOpen, BookText, Laptop, Plug, Users, Wallet, Waypoints } from 'lucide-react'
import type { ReactNode } from 'react'

const STEPS = [
  { to: '/providers', name: 'Connect a provider', about: 'Store a credential once; it is encrypted and never shown again.', icon: Plug },
  { to: '/models', name: 'Name your models', about: 'One name for several targets, with fallbacks and shares. Applications keep the name when you change the target.', icon: Waypoints },
  { to: '/prompts', name: 'Create a prompt', about: 'Templates with versions, used by name from any request.', icon: BookText },
  { to: '/org/budgets', name: 'Set a budget', about: 'A warning and a hard limit by day, week or month.', icon: Wallet },
  { to: '/org/members', name: 'Invite a member', about: 'Members, admins and viewers, in teams if you like.', icon: Users },
]
const DOCS = [
  { href: '/console/docs/clients/claude-code', name: 'Set up your tools', about: 'Claude Code, Cursor, Open WebUI, LangChain and others.', icon: Laptop },
  { href: '/console/docs/', name: 'Read the documentation', about: 'Concepts, routing, caching, limits, and the API.', icon: BookOpen },
]
const CARD = 'flex h-full gap-2.5 rounded-md border border-line p-3 hover:bg-sunken'

export function NextSteps() {
  return (
    <ul className="grid gap-2 sm:grid-cols-2">
      {STEPS.map(({ to, name, about, icon: Icon }) => (
        <li key={to}>
          <Link to={to} className={CARD}>
            <Card name={name} about={about} icon={<Icon size={16} className="mt-0.5 shrink-0 text-accent" aria-hidden />} />
          </Link>
        </li>
      ))}
      {DOCS.map(({ href, name, about, icon: Icon }) => (
        <li key={href}>
          <a href={href} target="_blank" rel="noopener" className={CARD}>
            <Card name={name} about={about} icon={<Icon size={16} className="mt-0.5 shrink-0 text-accent" aria-hidden />} />
          </a>
        </li>
      ))}
    </ul>
  )
}

function Card({ name, about, icon }: { name: string; about: string; icon: ReactNode }) {
  return (
    <>
      {icon}
      <span>
        <span className="block font-medium">{name}</span>
        <span className="block text-xs text-muted">{about}</span>
      </span>
    </>
  )
}
