import type { Schemas } from '@/api/client'
import { time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Button } from '@/ui'

interface PartialProps {
  page: Pick<Schemas['LogList'], 'partial' | 'scanned_to' | 'next_cursor'> | undefined
  busy: boolean
  onMore(): void
}

/** Says that a search did not look at all rows, and how to go on. */
export function PartialNote({ page, busy, onMore }: PartialProps) {
  const { zone } = usePrefs()
  if (!page?.partial) return null
  return (
    <div role="status" className="flex flex-wrap items-center gap-3 border-t border-line bg-warn-soft px-4 py-1.5 text-xs">
      <span>
        Searched back to {time(page.scanned_to, zone)}.{page.next_cursor === null && ' There are too many rows to search all of them: choose a shorter time range.'}
      </span>
      {page.next_cursor !== null && (
        <Button size="sm" busy={busy} onClick={onMore}>
          Search further back
        </Button>
      )}
    </div>
  )
}
