import type { ReactNode } from 'react'
import { Button } from './Button'

interface EmptyProps {
  icon?: ReactNode
  title: string
  /** What this is, in a sentence. */
  children?: ReactNode
  action?: ReactNode
  /** A snippet below. */
  more?: ReactNode
}

/** Nothing there yet: what it is, and the one thing to do about it. */
export function Empty({ icon, title, children, action, more }: EmptyProps) {
  return (
    <section className="mx-auto flex w-full max-w-[640px] flex-col items-center gap-3 px-4 py-12 text-center">
      {icon && <div className="text-muted">{icon}</div>}
      <h2 className="text-lg">{title}</h2>
      {children && <div className="max-w-[52ch] text-muted">{children}</div>}
      {action && <div className="mt-1 flex flex-wrap justify-center gap-2">{action}</div>}
      {more && <div className="mt-4 w-full text-left">{more}</div>}
    </section>
  )
}

/** Nothing matches what was asked for. */
export function NoMatch({ what = 'rows', chips, onClear }: { what?: string; chips?: ReactNode; onClear(): void }) {
  return (
    <section role="status" className="flex flex-col items-center gap-3 px-4 py-12 text-center">
      <h2 className="text-base">No {what} match</h2>
      {chips && <div className="flex flex-wrap justify-center gap-1">{chips}</div>}
      <Button onClick={onClear}>Clear</Button>
    </section>
  )
}
