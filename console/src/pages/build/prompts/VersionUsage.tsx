import { Link } from '@tanstack/react-router'
import { api, type Schemas } from '@/api/client'
import { duration, integer, money, moneyColumn, percent, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Badge, Empty, ErrorPanel, SkeletonRows, Table, type Column } from '@/ui'

type Usage = Schemas['PromptVersionUsage']

/** Usage, cost and eval scores of each version, over the last 30 days. */
export function VersionUsage({ namespace, slug, shown, onShow }: { namespace: string; slug: string; shown: number; onShow(version: number): void }) {
  const { zone } = usePrefs()
  const usage = api.useQuery('get', '/api/v1/prompts/{namespace}/{slug}/usage', { params: { path: { namespace, slug } } }, { staleTime: 30_000 })
  if (usage.isError) return <div className="p-3"><ErrorPanel error={usage.error} what="the usage" onRetry={() => void usage.refetch()} /></div>
  if (!usage.data) return <SkeletonRows rows={3} />
  const { versions, from, partial, scanned_to: scanned } = usage.data
  if (versions.length === 0) return <Empty title="Not used yet">Requests that name this prompt, and eval runs that use it, are added up here by version.</Empty>
  const cost = moneyColumn(versions.map((one) => one.cost_usd))
  const columns: Column<Usage>[] = [
    {
      key: 'version',
      header: 'Version',
      className: 'py-1',
      cell: (row) => (
        <span className="flex flex-wrap items-center gap-1">
          <span className="font-medium">v{row.version}</span>
          {row.labels.map((label) => (
            <Badge key={label} tone="accent">
              {label}
            </Badge>
          ))}
        </span>
      ),
    },
    { key: 'requests', header: 'Requests', number: true, cell: (row) => integer(row.requests) },
    { key: 'errors', header: 'Errors', number: true, from: 'sm', cell: (row) => (row.requests === 0 ? '–' : percent(row.errors / row.requests)) },
    {
      key: 'cost',
      header: 'Cost',
      number: true,
      className: 'py-1',
      cell: (row) => (
        <>
          {row.requests === 0 ? '–' : row.cost_usd === null ? 'no price' : cost(row.cost_usd)}
          {row.requests > 0 && row.cost_usd !== null && <span className="block text-xs text-muted">{money(row.cost_usd / row.requests)} each</span>}
        </>
      ),
    },
    { key: 'p95', header: 'p95', number: true, from: 'sm', cell: (row) => duration(row.p95_ms) },
    { key: 'scores', header: 'Evals passed', cell: (row) => <Scores row={row} /> },
  ]
  return (
    <>
      <Table label="Usage by version" columns={columns} rows={versions} rowKey={(row) => row.version} selected={shown} onOpen={(row) => onShow(row.version)} />
      <p className="border-t border-line px-3 py-2 text-xs text-muted">
        Proxied requests since {time(partial ? scanned : from, zone)}
        {partial && ': earlier ones were too many to add up'}; verdicts of all eval runs.{' '}
        <Link to="/logs" search={{ query: `prompt:${namespace}/${slug}`, range: '30d' }} className="text-accent underline">
          Open in logs
        </Link>
      </p>
    </>
  )
}

function Scores({ row }: { row: Usage }) {
  if (row.evals.length === 0) return <>–</>
  return (
    <ul className="flex flex-col gap-0.5">
      {row.evals.map((one) => (
        <li key={one.eval_id}>
          <Link to="/evals/$evalId" params={{ evalId: String(one.eval_id) }} className="text-accent underline">
            {one.eval_name}
          </Link>{' '}
          <span className="tabular-nums">{percent(one.pass_rate)}</span> <span className="text-xs text-muted">of {plural(one.passed + one.failed, 'case')}</span>
        </li>
      ))}
    </ul>
  )
}
