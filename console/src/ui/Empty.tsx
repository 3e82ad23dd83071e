import type { ReactNode } from 'react'
import { Button } from './Button'

interface EmptyProps {
  icon?: ReactNode
  title: string
  /** One-sentence description. */
  children?: ReactNode
  action?: ReactNode
  /** Optional content below, e.g. a snippet. */
  more?: ReactNode
}

/** Empty state with a description and one action. */
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

/** Empty state of a filtered list. */
export function NoMatch({ what = 'rows', chips, onClear }: { what?: string; chips?: ReactNode; onClear(): void }) {
  return (
    <section role="status" className="flex flex-col items-center gap-3 px-4 py-12 text-center">
      <h2 className="text-base">No {what} match</h2>
      {chips && <div className="flex flex-wrap justify-center gap-1">{chips}</div>}
      <Button onClick={onClear}>Clear</Button>
    </section>
  )
}
