import { BookOpen, CircleHelp, CircleUser, LogOut, Menu as MenuIcon, Monitor, Moon, PanelLeft, Rocket, Search, Settings2, Sun } from 'lucide-react'
import { useLocation, useNavigate, useSearch } from '@tanstack/react-router'
import { signOut } from '@/api/auth'
import { useMe } from '@/api/me'
import { zoneName } from '@/lib/format'
import { cycleTheme, setPrefs, usePrefs } from '@/lib/prefs'
import type { RangeSearch } from '@/lib/range'
import { MOD_KEY_LABEL } from '@/lib/shortcuts'
import { Button, DateRange, Menu, MenuItem, MenuLabel, MenuLine } from '@/ui'
import { docsOf } from './nav'
import { OrgSwitcher } from './OrgSwitcher'

/** Pages that show data of a time range: not one session, prices, or a model that is not there yet. */
function hasRange(path: string, view?: unknown): boolean {
  return path === '/' || (/^\/(logs|sessions|usage|models|replays\/new)(\/(?!new$)|$)/.test(path) && !path.startsWith('/sessions/') && view !== 'prices')
}

interface TopBarProps {
  onMenu(): void
  onPalette(): void
  onHelp(): void
}

const THEME = { system: Monitor, light: Sun, dark: Moon }

export function TopBar({ onMenu, onPalette, onHelp }: TopBarProps) {
  const prefs = usePrefs()
  const search = useSearch({ strict: false }) as RangeSearch & { view?: unknown }
  const navigate = useNavigate()
  const path = useLocation({ select: (location) => location.pathname })
  const Theme = THEME[prefs.theme]
  const setRange = (range: RangeSearch) =>
    void navigate({ to: '.', search: ((before: Record<string, unknown>) => ({ ...before, range: undefined, from: undefined, to: undefined, ...range })) as never })
  return (
    <header className="relative z-20 flex h-11 shrink-0 items-center gap-1 border-b border-line bg-surface px-2">
      <Button kind="ghost" square className="md:hidden" aria-label="Open navigation" icon={<MenuIcon size={16} aria-hidden />} onClick={onMenu} />
      <Button kind="ghost" square className="max-md:hidden" aria-label={prefs.nav === 'open' ? 'Close navigation' : 'Open navigation'} aria-expanded={prefs.nav === 'open'} title={`${MOD_KEY_LABEL}B`} icon={<PanelLeft size={16} aria-hidden />} onClick={() => setPrefs({ nav: prefs.nav === 'open' ? 'closed' : 'open' })} />
      <OrgSwitcher />
      <button type="button" className="btn mx-auto w-full max-w-80 min-w-0 justify-start font-normal text-muted max-md:hidden" onClick={onPalette}>
        <Search size={14} aria-hidden />
        <span className="flex-1 truncate text-left">Search or jump to…</span>
        <kbd className="kbd">{MOD_KEY_LABEL}K</kbd>
      </button>
      <div className="ml-auto flex items-center gap-1">
        <Button kind="ghost" square className="md:hidden" aria-label="Search or jump" icon={<Search size={16} aria-hidden />} onClick={onPalette} />
        {hasRange(path, search.view) && <DateRange value={search} onChange={setRange} />}
        <Button kind="ghost" className="max-lg:hidden" title="Time zone of all times" onClick={() => setPrefs({ zone: prefs.zone === 'utc' ? 'local' : 'utc' })}>
          <span className="text-xs text-muted">
            <span className="sr-only">Zone: </span>
            {zoneName(prefs.zone)}
          </span>
        </Button>
        <a href={docsOf(path)} target="_blank" rel="noopener" className="btn btn-ghost btn-icon" aria-label="Documentation of this page" title="Documentation">
          <BookOpen size={16} aria-hidden />
        </a>
        <Button kind="ghost" square className="max-sm:hidden" aria-label={`Theme: ${prefs.theme}; change`} title={`Theme: ${prefs.theme}`} icon={<Theme size={16} aria-hidden />} onClick={cycleTheme} />
        <Account onHelp={onHelp} />
      </div>
    </header>
  )
}

function Account({ onHelp }: { onHelp(): void }) {
  const me = useMe()
  const prefs = usePrefs()
  const navigate = useNavigate()
  return (
    <Menu trigger={<Button kind="ghost" square aria-label="Account" icon={<CircleUser size={16} aria-hidden />} />}>
      <MenuLabel>
        <span className="block text-sm text-fg">{me.email}</span>
        {me.role} of {me.org?.name}
      </MenuLabel>
      <MenuLine />
      <MenuItem icon={<Settings2 size={14} aria-hidden />} onSelect={() => void navigate({ to: '/account' })}>
        Account
      </MenuItem>
      <MenuItem icon={<Rocket size={14} aria-hidden />} onSelect={() => void navigate({ to: '/start' })}>
        First steps
      </MenuItem>
      <MenuItem icon={<CircleHelp size={14} aria-hidden />} keys="?" onSelect={onHelp}>
        Keyboard shortcuts
      </MenuItem>
      <MenuItem icon={<Sun size={14} aria-hidden />} onSelect={cycleTheme}>
        Theme: {prefs.theme}
      </MenuItem>
      <MenuLine />
      <MenuItem icon={<LogOut size={14} aria-hidden />} onSelect={() => void signOut()}>
        Sign out
      </MenuItem>
    </Menu>
  )
}
