import { Link } from '@tanstack/react-router'
import { BookText, Plug, Users, Wallet } from 'lucide-react'

const STEPS = [
  { to: '/providers', name: 'Connect a provider', about: 'Store a credential once; it is sealed and never shown again.', icon: Plug },
  { to: '/prompts', name: 'Make a prompt', about: 'Templates with versions, used by name from any request.', icon: BookText },
  { to: '/org/budgets', name: 'Set a budget', about: 'A warning and a hard limit by day, week or month.', icon: Wallet },
  { to: '/org/members', name: 'Invite somebody', about: 'Members, admins and viewers, in teams if you like.', icon: Users },
]

export function NextSteps() {
  return (
    <ul className="grid gap-2 sm:grid-cols-2">
      {STEPS.map(({ to, name, about, icon: Icon }) => (
        <li key={to}>
          <Link to={to} className="flex h-full gap-2.5 rounded-md border border-line p-3 hover:bg-sunken">
            <Icon size={16} className="mt-0.5 shrink-0 text-accent" aria-hidden />
            <span>
              <span className="block font-medium">{name}</span>
              <span className="block text-xs text-muted">{about}</span>
            </span>
          </Link>
        </li>
      ))}
    </ul>
  )
}
