import { useEffect, type ReactNode } from 'react'
import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { cost, duration, money } from '@/lib/format'
import { useShortcuts } from '@/lib/shortcuts'
import { OutputOfLog } from '@/pages/observe/logs/Output'
import { Badge, Button, Checkbox, Empty, ErrorPanel, Pager, Section, SkeletonRows, Table, type Column } from '@/ui'
import { ResultDrawer } from './ResultDrawer'
import { isRunning } from './RunList'
import { useCall } from './useCall'
import { subjectOf, useCaseTexts } from './useInputs'
import { itemKey, useOtherRun, type OtherRun } from './useOtherRun'

type Result = Schemas['EvalResult']

interface ResultsProps {
  run: Schemas['EvalRun']
  /** Id of the run to compare with. */
  to: number | undefined
  order: 'failed' | 'came'
  onOrder(order: 'failed' | 'came'): void
  /** Id of the verdict in the drawer. */
  item: number | undefined
  onItem(item: number | undefined): void
  onLog(logId: number): void
}

/** The loaded verdicts of a run; the table and the drawer share them. */
function useResults(run: Schemas['EvalRun'], order: 'failed' | 'came') {
  const list = api.useInfiniteQuery('get', '/api/v1/evals/runs/{runId}/results', { params: { path: { runId: run.id }, query: { limit: 100 } } }, { ...cursorPaging, meta: { quiet: true }, refetchInterval: isRunning(run) ? 2000 : false, staleTime: isRunning(run) ? 0 : 60_000 })
  const { refetch } = list
  // The last verdicts come after the last poll.
  useEffect(() => {
    if (run.finished_at !== null) void refetch({ cancelRefetch: false })
  }, [run.finished_at, refetch])
  const came = list.data?.pages.flatMap((page) => page.results) ?? []
  return { list, rows: order === 'failed' ? came.toSorted((a, b) => Number(a.passed) - Number(b.passed)) : came, errors: list.data?.pages[0]?.errors ?? [] }
}

/** The page beside the drawer of one verdict. The keys j and k go to the next and the previous one. */
export function WithResultDrawer({ run, to, order, item, onItem, onLog, children }: Omit<ResultsProps, 'onOrder'> & { children: ReactNode }) {
  const { rows } = useResults(run, order)
  const texts = useCaseTexts(run)
  const other = useOtherRun(to)
  const at = rows.findIndex((row) => row.id === item)
  const step = (by: number) => {
    const next = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))]
    if (next) onItem(next.id)
  }
  useShortcuts({ j: () => step(1), k: () => step(-1) }, rows.length > 0)
  return (
    <ResultDrawer run={run} rows={rows} item={item} texts={texts} other={other} onItem={onItem} onLog={onLog}>
      {children}
    </ResultDrawer>
  )
}

/** Results of a run. Enter opens one; with another run, its answers stand beside. */
export function Results({ run, to, order, onOrder, item, onItem, onLog }: ResultsProps) {
  const inputs = useCaseTexts(run)
  const { list, rows, errors } = useResults(run, order)
  const other = useOtherRun(to)
  const hasExpected = [...inputs.values()].some((texts) => texts.expected !== '')
  // The calls are read one by one, so not while new ones arrive.
  const hasCalls = !isRunning(run) && rows.some((row) => row.log_id !== null)
  // Outputs of a working copy may have been edited since the run.
  const answer = run.target == null && run.dataset_id !== null && run.dataset_version === null ? 'Answer (as stored now)' : other ? 'Answer A' : 'Answer'
  const columns: Column<Result>[] = [
    { key: 'passed', header: other ? 'Verdict A' : 'Verdict', cell: (row) => <Verdict passed={row.passed} /> },
    { key: 'input', header: 'Input', className: 'max-w-48 truncate 2xl:max-w-80', cell: (row) => subjectOf(row, inputs) },
    ...(hasExpected ? [{ key: 'expected', header: 'Expected', className: 'max-w-40 truncate 2xl:max-w-60', from: 'lg' as const, cell: (row: Result) => <span title={inputs.get(row.case_id ?? '')?.expected}>{inputs.get(row.case_id ?? '')?.expected}</span> }] : []),
    { key: 'answer', header: answer, className: 'max-w-48 truncate 2xl:max-w-80', from: 'md', cell: (row) => <Answer row={row} stored={inputs.get(row.case_id ?? '')?.output ?? ''} /> },
    ...(other ? otherColumns(other) : []),
    { key: 'score', header: 'Score', number: true, cell: (row) => row.score.toFixed(2) },
    ...(hasCalls
      ? [
          { key: 'cost', header: 'Cost', number: true, from: 'lg' as const, cell: (row: Result) => <Fact row={row} fact="cost" /> },
          { key: 'latency', header: 'Latency', number: true, from: 'lg' as const, cell: (row: Result) => <Fact row={row} fact="latency" /> },
        ]
      : []),
    ...(other ? [] : [{ key: 'details', header: 'Why', className: 'w-full max-w-0 min-w-24 truncate text-muted', from: 'sm' as const, cell: (row: Result) => <span title={row.details}>{row.details}</span> }]),
    {
      key: 'log',
      // Positioned inside the table, so that it does not widen the page when the table scrolls.
      header: (
        <span className="relative">
          <span className="sr-only">Request</span>
        </span>
      ),
      from: 'sm',
      cell: (row) =>
        row.log_id !== null && (
          <Button size="sm" kind="ghost" onClick={() => row.log_id !== null && onLog(row.log_id)}>
            Open
          </Button>
        ),
    },
  ]
  return (
    <>
      {errors.length > 0 && (
        <Section title={`${errors.length} could not be judged`}>
          <ul className="flex max-h-48 flex-col gap-1 overflow-y-auto" aria-label="Errors" tabIndex={0}>
            {errors.map((one, at) => (
              <li key={at} className="break-words">
                <span className="text-muted">{subjectOf(one, inputs)}:</span> {one.error}
              </li>
            ))}
          </ul>
        </Section>
      )}
      <Section
        flush
        title="Results"
        aside={
          <Checkbox label="Failures first" checked={order === 'failed'} onChange={(event) => onOrder(event.target.checked ? 'failed' : 'came')} />
        }
      >
        {list.isError ? (
          <div className="p-3">
            <ErrorPanel error={list.error} what="the results" onRetry={() => void list.refetch()} />
          </div>
        ) : !list.data ? (
          <SkeletonRows rows={6} />
        ) : rows.length === 0 ? (
          <Empty title={isRunning(run) ? 'Nothing judged yet' : 'Nothing was judged'} />
        ) : (
          <>
            <Table label="Results" columns={columns} rows={rows} rowKey={(row) => row.id} selected={item ?? null} onOpen={(row) => onItem(row.id)} />
            <Pager shown={rows.length} what="verdicts" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
          </>
        )}
      </Section>
    </>
  )
}

/** The verdict and the answer of the other run on the same item. */
function otherColumns(other: OtherRun): Column<Result>[] {
  const of = (row: Result) => other.results.get(itemKey(row))
  // Outputs that were stored with the cases may have changed since, so only answers of models are shown.
  const answers: Column<Result>[] = [...other.results.values()].some((row) => row.log_id !== null)
    ? [
        {
          key: 'other-answer',
          header: 'Answer B',
          className: 'max-w-48 truncate 2xl:max-w-80',
          from: 'md',
          cell: (row) => {
            const logId = of(row)?.log_id ?? null
            return logId === null ? '–' : <OutputOfLog logId={logId} />
          },
        },
      ]
    : []
  return [
    ...answers,
    {
      key: 'other',
      header: 'Verdict B',
      cell: (row) => {
        const found = of(row)
        return found ? <Verdict passed={found.passed} /> : '–'
      },
    },
  ]
}

function Verdict({ passed }: { passed: boolean }) {
  return <Badge tone={passed ? 'ok' : 'err'}>{passed ? 'passed' : 'failed'}</Badge>
}

/** Cost or latency of the logged call. The answer of the same row is read from the same response. */
function Fact({ row, fact }: { row: Result; fact: 'cost' | 'latency' }) {
  const { call } = useCall(row.log_id)
  if (!call) return <>–</>
  if (fact === 'latency') return <span className="whitespace-nowrap">{duration(call.latencyMs)}</span>
  return (
    <span className="whitespace-nowrap" title={money(call.costUsd)}>
      {cost(call.costUsd)}
    </span>
  )
}

/** What was judged: the response of the logged request, or the output that the case holds. */
function Answer({ row, stored }: { row: Result; stored: string }) {
  return row.log_id === null ? <span title={stored}>{stored}</span> : <OutputOfLog logId={row.log_id} />
}
