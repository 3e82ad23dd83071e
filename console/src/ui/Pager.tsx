import { Button } from './Button'

interface PagerProps {
  shown: number
  /** Plural noun of the items: "keys". */
  what: string
  more: boolean
  busy: boolean
  onMore(): void
}

/** "Load more" pager for cursor pagination. */
export function Pager({ shown, what, more, busy, onMore }: PagerProps) {
  return (
    <div className="flex items-center justify-between gap-3 border-t border-line px-3 py-2 text-xs text-muted">
      <span>
        {shown} {shown === 1 ? what.replace(/ies$/, 'y').replace(/s$/, '') : what}
        {more ? ', there are more' : ''}
      </span>
      {more && (
        <Button size="sm" busy={busy} onClick={onMore}>
          Load more
        </Button>
      )}
    </div>
  )
}
