/** Layout of signed-in pages: navigation, top bar, banners and global dialogs. */
import { useIsFetching } from '@tanstack/react-query'
import { Outlet, useNavigate } from '@tanstack/react-router'
import { WifiOff } from 'lucide-react'
import { Dialog as Radix } from 'radix-ui'
import { lazy, Suspense, useEffect, useMemo, useState, useSyncExternalStore } from 'react'
import { useSession } from '@/api/session'
import { setPrefs, usePrefs } from '@/lib/prefs'
import { useShortcuts, type Bindings } from '@/lib/shortcuts'
import { Toasts } from '@/ui'
import { NAV } from './nav'
import { Nav } from './Nav'
import { ReauthDialog } from './ReauthDialog'
import { TopBar } from './TopBar'

const Palette = lazy(() => import('./Palette').then((module) => ({ default: module.Palette })))
const Help = lazy(() => import('./Help').then((module) => ({ default: module.Help })))

export function Shell() {
  const { nav } = usePrefs()
  const session = useSession()
  const navigate = useNavigate()
  const [open, setOpen] = useState<'palette' | 'help' | 'nav' | null>(null)
  const close = () => setOpen(null)

  const goTo = useMemo(() => {
    const bindings: Bindings = {}
    for (const { key, to } of NAV.flatMap((group) => group.items)) {
      if (key) bindings[`g ${key}`] = () => void navigate({ to })
    }
    return bindings
  }, [navigate])
  useShortcuts({
    ...goTo,
    'mod+k': () => setOpen('palette'),
    'mod+b': () => setPrefs({ nav: nav === 'open' ? 'closed' : 'open' }),
    '?': () => setOpen('help'),
  })

  // Signed out in this or another tab.
  useEffect(() => {
    if (!session) void navigate({ to: '/login', search: {} })
  }, [session, navigate])

  return (
    <div className="flex h-dvh flex-col">
      <a href="#main" className="btn fixed top-1 left-1 z-80 -translate-y-16 focus:translate-y-0">
        Skip to content
      </a>
      <TopBar onMenu={() => setOpen('nav')} onPalette={() => setOpen('palette')} onHelp={() => setOpen('help')} />
      <Refetching />
      <Offline />
      <div className="flex min-h-0 flex-1">
        <div className={nav === 'open' ? 'flex w-52 shrink-0 border-r border-line bg-surface max-md:hidden' : 'flex w-13 shrink-0 border-r border-line bg-surface max-md:hidden'}>
          <Nav closed={nav === 'closed'} />
        </div>
        <main id="main" tabIndex={-1} className="flex min-h-0 min-w-0 flex-1 flex-col overflow-y-auto outline-none">
          <Outlet />
        </main>
      </div>
      <Radix.Root open={open === 'nav'} onOpenChange={(next) => !next && close()}>
        <Radix.Portal>
          <Radix.Overlay className="scrim" />
          <Radix.Content data-modal="true" aria-describedby={undefined} className="fixed inset-y-0 left-0 z-50 flex w-64 flex-col border-r border-line bg-raised">
            <Radix.Title className="px-4 pt-3 text-lg">Gateway</Radix.Title>
            <Nav closed={false} onNavigate={close} />
          </Radix.Content>
        </Radix.Portal>
      </Radix.Root>
      <Suspense>
        {open === 'palette' && <Palette onClose={close} />}
        {open === 'help' && <Help onClose={close} />}
      </Suspense>
      <ReauthDialog />
      <Toasts />
    </div>
  )
}

/** Progress bar shown while visible data is refetched. */
function Refetching() {
  const busy = useIsFetching({ predicate: (query) => query.state.data !== undefined && query.meta?.['quiet'] !== true }) > 0
  return <div className="relative z-10 h-0">{busy && <div className="refetch !top-0" />}</div>
}

function Offline() {
  const online = useSyncExternalStore(
    (listener) => {
      addEventListener('online', listener)
      addEventListener('offline', listener)
      return () => {
        removeEventListener('online', listener)
        removeEventListener('offline', listener)
      }
    },
    () => navigator.onLine,
  )
  return (
    <div role="status">
      {!online && (
        <p className="flex items-center justify-center gap-2 border-b border-line bg-warn-soft px-4 py-1.5 text-warn">
          <WifiOff size={14} aria-hidden /> You are offline. You see what was loaded before; it updates once you are back online.
        </p>
      )}
    </div>
  )
}
