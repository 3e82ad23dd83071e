import { Maximize2, Minimize2, X } from 'lucide-react'
import { useEffect, useRef, useState, type KeyboardEvent, type PointerEvent, type ReactNode } from 'react'
import { setPrefs, usePrefs } from '@/lib/prefs'
import { useShortcuts } from '@/lib/shortcuts'
import { Button } from './Button'

const MIN_WIDTH = 420
const MAX_WIDTH = 900

export interface DrawerProps {
  /** The page content beside the drawer. */
  children: ReactNode
  open: boolean
  onClose(): void
  label: string
  head?: ReactNode
  content: ReactNode
}

/**
 * A page with a docked, non-modal drawer on the right, so that rows can be selected while it is open. Narrow screens
 * show the drawer only.
 */
export function DockedDrawer({ children, open, onClose, label, head, content }: DrawerProps) {
  const { drawerWidth } = usePrefs()
  const [width, setWidth] = useState(drawerWidth)
  const [full, setFull] = useState(false)
  const panel = useRef<HTMLDivElement>(null)
  const opener = useRef<Element | null>(null)

  useShortcuts({ Escape: onClose, f: () => setFull((now) => !now) }, open)
  useEffect(() => {
    if (!open) return
    opener.current = document.activeElement
    return () => {
      // Restore focus to the opener unless the user moved it elsewhere.
      if (panel.current?.contains(document.activeElement) || document.activeElement === document.body) {
        if (opener.current instanceof HTMLElement && opener.current.isConnected) opener.current.focus({ preventScroll: true })
      }
    }
  }, [open])

  const resize = (next: number) => {
    const clamped = Math.round(Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, next)))
    setWidth(clamped)
    return clamped
  }
  const resizeByPointer = (event: PointerEvent<HTMLDivElement>) => {
    if (event.currentTarget.hasPointerCapture(event.pointerId)) resize(window.innerWidth - event.clientX)
  }
  const resizeByKey = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowLeft' ? 24 : event.key === 'ArrowRight' ? -24 : 0
    if (step === 0) return
    event.preventDefault()
    setPrefs({ drawerWidth: resize(width + step) })
  }

  return (
    <div className="flex min-h-0 min-w-0 flex-1">
      <div className={open ? (full ? 'hidden' : 'hidden min-h-0 min-w-0 flex-1 flex-col lg:flex') : 'flex min-h-0 min-w-0 flex-1 flex-col'}>{children}</div>
      {open && (
        <div
          ref={panel}
          role="dialog"
          aria-label={label}
          className="relative flex min-h-0 w-full shrink-0 flex-col border-l border-line bg-surface max-lg:!w-full max-lg:border-l-0"
          style={full ? undefined : { width: `min(${width}px, 62vw)` }}
        >
          {!full && (
            <div
              role="separator"
              aria-orientation="vertical"
              aria-label="Width of the drawer"
              aria-valuenow={width}
              aria-valuemin={MIN_WIDTH}
              aria-valuemax={MAX_WIDTH}
              tabIndex={0}
              className="absolute inset-y-0 -left-1 z-10 w-2 cursor-col-resize max-lg:hidden"
              onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
              onPointerMove={resizeByPointer}
              onPointerUp={() => setPrefs({ drawerWidth: width })}
              onKeyDown={resizeByKey}
            />
          )}
          <header className="flex items-start gap-2 border-b border-line px-4 py-2">
            <div className="min-w-0 flex-1">{head}</div>
            <Button kind="ghost" size="sm" square className="max-lg:hidden" aria-label={full ? 'Dock the drawer (f)' : 'Full width (f)'} aria-pressed={full} icon={full ? <Minimize2 size={14} aria-hidden /> : <Maximize2 size={14} aria-hidden />} onClick={() => setFull(!full)} />
            <Button kind="ghost" size="sm" square aria-label="Close (Esc)" icon={<X size={16} aria-hidden />} onClick={onClose} />
          </header>
          <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">{content}</div>
        </div>
      )}
    </div>
  )
}
