import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { ago, plural } from '@/lib/format'
import { cx } from '@/lib/cx'
import { useNow } from '@/lib/useNow'
import { Empty, ErrorPanel, Pager, SkeletonRows } from '@/ui'

type Run = Schemas['PlaygroundRun']

/** The user's run history, newest first, grouped by comparison. */
export function History({ shown, onOpen }: { shown: string | undefined; onOpen(id: string): void }) {
  const now = useNow(30_000)
  const list = api.useInfiniteQuery('get', '/api/v1/playground/history', { params: { query: { limit: 50 } } }, cursorPaging)
  if (list.isError) return <div className="p-4"><ErrorPanel error={list.error} what="the history" onRetry={() => void list.refetch()} /></div>
  if (!list.data) return <SkeletonRows rows={6} height={52} />
  const groups = grouped(list.data.pages.flatMap((page) => page.runs))
  if (groups.length === 0) return <Empty title="No runs yet">Your last 1,000 runs are kept here, and can be opened again.</Empty>
  return (
    <>
      <ul>
        {groups.map(([id, runs]) => (
          <li key={id} className="border-b border-line">
            <button type="button" className={cx('flex w-full flex-col gap-0.5 px-4 py-2 text-left hover:bg-sunken', id === shown && 'bg-accent-soft')} aria-current={id === shown} onClick={() => onOpen(id)}>
              <span className="flex w-full items-baseline gap-2">
                <code className="name min-w-0 flex-1 truncate">{runs.length === 1 ? `${runs[0]?.provider}/${runs[0]?.model}` : plural(runs.length, 'model')}</code>
                <span className="text-xs text-muted">{ago(runs[0]?.created_at, now)}</span>
              </span>
              <span className="w-full truncate text-muted">{runs[0]?.output.slice(0, 120) || 'no text'}</span>
            </button>
          </li>
        ))}
      </ul>
      <Pager shown={groups.length} what="entries" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
    </>
  )
}

function grouped(runs: readonly Run[]): [string, Run[]][] {
  const groups = new Map<string, Run[]>()
  for (const run of runs) {
    const id = run.comparison_id ?? run.id
    groups.set(id, [...(groups.get(id) ?? []), run])
  }
  return [...groups]
}
