import { useEffect, type ReactNode } from 'react'
import { cx } from '@/lib/cx'

interface PageProps {
  title: string
  /** Content next to the title: a badge or a count. */
  beside?: ReactNode
  /** One-sentence description of the page. */
  about?: ReactNode
  actions?: ReactNode
  /** Fills the viewport and scrolls inside, for tables with a drawer. */
  fixed?: boolean
  children: ReactNode
}

/** Page layout: title (also of the document), actions and content. */
export function Page({ title, beside, about, actions, fixed, children }: PageProps) {
  useEffect(() => {
    document.title = `${title} · Gateway`
  }, [title])
  return (
    <div className={cx('flex min-w-0 flex-1 flex-col', fixed ? 'min-h-0' : 'mx-auto w-full max-w-[1440px] gap-4 p-4')}>
      <header className={cx('flex flex-wrap items-center gap-x-3 gap-y-2', fixed && 'px-4 pt-3 pb-2')}>
        <div className={cx('min-w-0 flex-1 basis-56', about !== undefined && 'max-sm:basis-72')}>
          <div className="flex items-center gap-2">
            <h1 className="min-w-0 text-xl break-words sm:truncate">{title}</h1>
            {beside}
          </div>
          {about && <p className="text-muted">{about}</p>}
        </div>
        {actions && <div className="flex flex-wrap items-center gap-2">{actions}</div>}
      </header>
      {children}
    </div>
  )
}

interface SectionProps {
  title?: ReactNode
  aside?: ReactNode
  children: ReactNode
  className?: string
  /** Removes the padding, for tables and charts. */
  flush?: boolean
}

export function Section({ title, aside, children, className, flush }: SectionProps) {
  return (
    <section className={cx('card min-w-0', className)}>
      {(title || aside) && (
        <header className="flex min-h-10 flex-wrap items-center gap-2 px-3 pt-1.5">
          <h2 className="min-w-0 flex-1 text-sm break-words">{title}</h2>
          {aside}
        </header>
      )}
      <div className={flush ? undefined : title ? 'px-3 pt-1 pb-3' : 'p-3'}>{children}</div>
    </section>
  )
}
