import { Link } from '@tanstack/react-router'

interface ViewLink {
  name: string
  to: string
  params?: Record<string, string>
  search?: Record<string, string | number | undefined>
  current: boolean
}

/** Links to sibling routes, styled as tabs. */
export function ViewLinks({ label, links }: { label: string; links: readonly ViewLink[] }) {
  return (
    <nav aria-label={label} className="flex shrink-0 overflow-x-auto overflow-y-hidden border-b border-line px-2">
      {links.map(({ name, to, params, search, current }) => (
        <Link key={name} to={to} params={params ?? {}} search={(before: object) => ({ ...rangeOf(before), ...search })} className="tab inline-flex items-center" data-state={current ? 'active' : 'inactive'} aria-current={current ? 'page' : undefined}>
          {name}
        </Link>
      ))}
    </nav>
  )
}

/** Keeps the time range and drops all other search parameters. */
function rangeOf(search: object): object {
  return Object.fromEntries(Object.entries(search).filter(([name]) => ['range', 'from', 'to'].includes(name)))
}
