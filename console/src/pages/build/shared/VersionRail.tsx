import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { cx } from '@/lib/cx'
import { useMe } from '@/api/me'
import { Badge, Button, ErrorPanel, Pager, Section, SkeletonRows } from '@/ui'
import type { ReactNode } from 'react'

interface Version {
  version: number
  at: string
  by: string | null
  /** Additional note: "on the shelf". */
  note?: ReactNode
}

interface VersionRailProps {
  versions: readonly Version[] | undefined
  error: unknown
  onRetry(): void
  /** The displayed version. */
  shown: number
  latest: number
  onShow(version: number): void
  onCompare(version: number): void
  more: boolean
  busy: boolean
  onMore(): void
}

/** Version list, newest first, to select a version or compare it with the displayed one. */
export function VersionRail({ versions, error, onRetry, shown, latest, onShow, onCompare, more, busy, onMore }: VersionRailProps) {
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const me = useMe()
  return (
    <Section title="Versions" flush>
      {error ? (
        <div className="p-3">
          <ErrorPanel error={error} what="the versions" onRetry={onRetry} />
        </div>
      ) : !versions ? (
        <SkeletonRows rows={3} />
      ) : (
        <>
          <ol className="max-h-80 overflow-y-auto" aria-label="Versions">
            {versions.map(({ version, at, by, note }) => (
              <li key={version} className={cx('flex min-h-10 items-center gap-2 border-t border-line px-3', version === shown && 'bg-accent-soft')}>
                <button type="button" className="flex min-h-9 min-w-0 flex-1 items-center gap-2 text-left" aria-current={version === shown} onClick={() => onShow(version)}>
                  <span className="font-medium tabular-nums">v{version}</span>
                  {version === latest && <Badge tone="accent">latest</Badge>}
                  {note}
                  <span className="min-w-0 flex-1 truncate text-right text-xs text-muted" title={time(at, zone, 'full')}>
                    {ago(at, Math.max(now, Date.parse(at)))}
                    {by !== null && by === me.userId && ', you'}
                  </span>
                </button>
                {version !== shown && (
                  <Button size="sm" kind="ghost" aria-label={`Compare v${version} with v${shown}`} onClick={() => onCompare(version)}>
                    Compare
                  </Button>
                )}
              </li>
            ))}
          </ol>
          {more && <Pager shown={versions.length} what="versions" more busy={busy} onMore={onMore} />}
        </>
      )}
    </Section>
  )
}
