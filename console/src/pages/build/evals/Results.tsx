import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'
import { OutputOfLog } from '@/pages/observe/logs/Output'
import { Badge, Button, Checkbox, Empty, ErrorPanel, Pager, Section, SkeletonRows, Table, type Column } from '@/ui'
import { isRunning } from './RunList'
import { subjectOf, useCaseTexts } from './useInputs'

type Result = Schemas['EvalResult']

interface ResultsProps {
  run: Schemas['EvalRun']
  order: 'failed' | 'came'
  onOrder(order: 'failed' | 'came'): void
  selected: number | undefined
  onLog(logId: number): void
}

/** Results of a run. Enter opens the request. */
export function Results({ run, order, onOrder, selected, onLog }: ResultsProps) {
  const inputs = useCaseTexts(run)
  const list = api.useInfiniteQuery('get', '/api/v1/evals/runs/{runId}/results', { params: { path: { runId: run.id }, query: { limit: 100 } } }, { ...cursorPaging, meta: { quiet: true }, refetchInterval: isRunning(run) ? 2000 : false, staleTime: isRunning(run) ? 0 : 60_000 })
  const came = list.data?.pages.flatMap((page) => page.results) ?? []
  const rows = order === 'failed' ? came.toSorted((a, b) => Number(a.passed) - Number(b.passed)) : came
  const errors = list.data?.pages[0]?.errors ?? []
  const hasExpected = [...inputs.values()].some((texts) => texts.expected !== '')
  const columns: Column<Result>[] = [
    { key: 'passed', header: 'Verdict', cell: (row) => <Badge tone={row.passed ? 'ok' : 'err'}>{row.passed ? 'passed' : 'failed'}</Badge> },
    { key: 'input', header: 'Input', className: 'max-w-72 truncate', cell: (row) => subjectOf(row, inputs) },
    ...(hasExpected ? [{ key: 'expected', header: 'Expected', className: 'max-w-60 truncate', from: 'lg' as const, cell: (row: Result) => <span title={inputs.get(row.case_id ?? '')?.expected}>{inputs.get(row.case_id ?? '')?.expected}</span> }] : []),
    // Outputs of a working copy may have been edited since the run.
    { key: 'answer', header: run.target == null && run.dataset_id !== null && run.dataset_version === null ? 'Answer (as stored now)' : 'Answer', className: 'max-w-72 truncate', from: 'md', cell: (row) => <Answer row={row} stored={inputs.get(row.case_id ?? '')?.output ?? ''} /> },
    { key: 'score', header: 'Score', number: true, cell: (row) => row.score.toFixed(2) },
    { key: 'details', header: 'Why', className: 'max-w-96 truncate text-muted', from: 'sm', cell: (row) => <span title={row.details}>{row.details}</span> },
    {
      key: 'log',
      header: <span className="sr-only">Request</span>,
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
            <Table label="Results" columns={columns} rows={rows} rowKey={(row) => row.id} selected={rows.find((row) => row.log_id === selected)?.id ?? null} onOpen={(row) => row.log_id !== null && onLog(row.log_id)} />
            <Pager shown={rows.length} what="verdicts" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
          </>
        )}
      </Section>
    </>
  )
}

/** What was judged: the response of the logged request, or the output that the case holds. */
function Answer({ row, stored }: { row: Result; stored: string }) {
  return row.log_id === null ? <span title={stored}>{stored}</span> : <OutputOfLog logId={row.log_id} />
}
