import { Link } from '@tanstack/react-router'
import { cx } from '@/lib/cx'
import { NAV } from './nav'

/** Navigation sidebar; collapsed it shows icons only. */
export function Nav({ closed, onNavigate }: { closed: boolean; onNavigate?: () => void }) {
  return (
    <nav aria-label="Main" className="flex flex-1 flex-col gap-3 overflow-y-auto overflow-x-hidden px-2 py-2">
      {NAV.map((group) => (
        <div key={group.name}>
          <h2 className={cx('px-2 pb-1 text-xs font-medium text-muted', closed && 'sr-only')}>{group.name}</h2>
          <ul className="flex flex-col gap-px">
            {group.items.map(({ to, name, icon: Icon }) => (
              <li key={to}>
                <Link
                  to={to}
                  activeOptions={{ exact: to === '/', includeSearch: false }}
                  activeProps={{ className: 'bg-accent-soft text-accent font-medium', 'aria-current': 'page' }}
                  inactiveProps={{ className: 'text-fg hover:bg-sunken' }}
                  className={cx('flex min-h-[30px] items-center gap-2.5 rounded-sm px-2 max-md:min-h-10', closed && 'justify-center')}
                  title={closed ? name : undefined}
                  onClick={onNavigate}
                >
                  <Icon size={16} className="shrink-0 opacity-80" aria-hidden />
                  <span className={closed ? 'sr-only' : undefined}>{name}</span>
                </Link>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  )
}
