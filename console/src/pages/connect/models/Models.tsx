/** Named models: what a model name means for the organization. */
import { FileInput, Plus, Waypoints } from 'lucide-react'
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router'
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { ago, integer, moneyColumn, percent, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { apiSnippet } from '@/lib/snippets'
import { Badge, Button, Code, Empty, ErrorPanel, Field, Input, NoMatch, Page, Pager, Section, SkeletonRows, Table, type Column } from '@/ui'
import { MODES, type Model } from './draft'
import { TargetShares } from './TargetShares'
import { leavesOf, sum, useTargetUsage } from './usage'

const route = getRouteApi('/shell/models')
const EXAMPLE = { name: 'smart', strategy: { mode: 'order' }, targets: [{ provider: 'openai', model: 'gpt-4o' }, { provider: 'anthropic', model: 'claude-sonnet-4-5' }] }

export function Models() {
  const { q = '' } = route.useSearch()
  const navigate = useNavigate()
  const { orgId } = useMe()
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/models', { params: { path: { orgId }, query: { limit: 200 } } }, cursorPaging)
  const models = list.data?.pages.flatMap((page) => page.models) ?? []
  const words = q.toLowerCase().split(/\s+/).filter(Boolean)
  const found = models.filter((model) => words.every((word) => searchText(model).includes(word)))
  const search = (next: string) => void navigate({ to: '/models', search: { q: next || undefined }, replace: true })
  const create = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => void navigate({ to: '/models/new' })}>
      New model
    </Button>
  )
  const importing = (
    <Button icon={<FileInput size={14} aria-hidden />} onClick={() => void navigate({ to: '/import' })}>
      Import…
    </Button>
  )
  return (
    <Page
      title="Models"
      about="A name for one or more provider models. Applications use the name; you change what is behind it here."
      actions={
        models.length > 0 && (
          <>
            {importing}
            {create}
          </>
        )
      }
    >
      {list.isError ? (
        <ErrorPanel error={list.error} what="the models" onRetry={() => void list.refetch()} />
      ) : !list.data ? (
        <Section flush>
          <SkeletonRows rows={6} />
        </Section>
      ) : models.length === 0 ? (
        <Empty
          icon={<Waypoints size={24} aria-hidden />}
          title="No models yet"
          action={
            <>
              {create}
              {importing}
            </>
          }
          more={<Code label="The same with the API" code={apiSnippet(location.origin, `/orgs/${orgId}/models`, EXAMPLE)} />}
        >
          A named model gives one name to several targets, with fallbacks, weights or conditions between them. Import brings those of LiteLLM, Portkey, OpenRouter and Helicone.
        </Empty>
      ) : (
        <>
          <div className="relative w-full sm:w-72">
            <Field label="Search models" quiet>
              <Input type="search" placeholder="Name or target" value={q} onChange={(event) => search(event.target.value)} />
            </Field>
          </div>
          {found.length === 0 ? (
            <NoMatch what="models" onClear={() => search('')} />
          ) : (
            <Section flush>
              <ModelTable models={found} />
              <Pager shown={found.length} what="models" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
            </Section>
          )}
          <p className="text-xs text-muted">Requests, errors and cost of the target models in this time range, including calls that named them directly.</p>
        </>
      )}
    </Page>
  )
}

function ModelTable({ models }: { models: readonly Model[] }) {
  const navigate = useNavigate()
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const usageOf = useTargetUsage(models)
  const rows = models.map((model) => {
    const usage = usageOf(model.targets)
    return { model, usage, total: usage && sum('', usage) }
  })
  const money = moneyColumn(rows.map(({ total }) => total?.cost_usd))
  const columns: Column<(typeof rows)[number]>[] = [
    {
      key: 'name',
      header: 'Model',
      className: 'name max-w-64 py-1',
      cell: ({ model }) => (
        <div className="flex min-w-0 flex-col">
          <span className="flex items-center gap-2">
            <Link to="/models/$modelId" params={{ modelId: model.id }} className="name truncate font-mono text-xs hover:underline">
              {model.name}
            </Link>
            {!model.enabled && <Badge tone="warn">disabled</Badge>}
            {model.hidden && <Badge>hidden</Badge>}
          </span>
          {model.description && <span className="truncate text-xs text-muted max-sm:hidden">{model.description}</span>}
          <span className="text-xs text-muted sm:hidden">
            <Targets model={model} />
          </span>
        </div>
      ),
    },
    { key: 'strategy', header: 'Strategy', from: 'sm', cell: ({ model }) => <span className="whitespace-nowrap">{MODES[model.strategy.mode].name}</span> },
    { key: 'targets', header: 'Targets', from: 'sm', className: 'max-w-56 truncate', cell: ({ model }) => <Targets model={model} /> },
    { key: 'share', header: 'Share', from: 'lg', cell: ({ usage }) => usage && <TargetShares usage={usage} /> },
    { key: 'requests', header: 'Requests', number: true, cell: ({ total }) => integer(total?.requests) },
    { key: 'errors', header: 'Errors', number: true, from: 'md', cell: ({ total }) => (total && total.requests > 0 ? <span className={total.errors > 0 ? 'text-err' : undefined}>{percent(total.errors / total.requests)}</span> : integer(null)) },
    { key: 'cost', header: 'Cost', number: true, from: 'md', cell: ({ total }) => (total && total.requests > 0 && total.cost_usd === null ? <span className="text-muted">no price</span> : money(total?.cost_usd)) },
    {
      key: 'updated',
      header: 'Changed',
      from: 'xl',
      cell: ({ model }) => (
        <time dateTime={model.updated_at} title={time(model.updated_at, zone, 'full')} className="whitespace-nowrap">
          v{model.version}, {ago(model.updated_at, now)}
        </time>
      ),
    },
  ]
  return <Table label="Models" columns={columns} rows={rows} rowKey={({ model }) => model.id} onOpen={({ model }) => void navigate({ to: '/models/$modelId', params: { modelId: model.id } })} />
}

function Targets({ model }: { model: Model }) {
  const names = namesOf(model)
  return (
    <span title={names.join('\n')}>
      <code>{names[0]}</code>
      {names.length > 1 && <span className="text-muted"> +{names.length - 1}</span>}
    </span>
  )
}

function namesOf(model: Model): string[] {
  return leavesOf(model.targets).map((target) => `${target.provider}/${target.model}`)
}

function searchText(model: Model): string {
  return `${model.name} ${model.description} ${model.strategy.mode} ${namesOf(model).join(' ')}`.toLowerCase()
}
