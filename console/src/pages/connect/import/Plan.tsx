import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '@/api/client'
import { money, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Badge, Section, Table, type Column, type Tone } from '@/ui'
import { MODES, type Definition } from '../models/draft'
import { leavesOf } from '../models/usage'
import type { Result } from './sources'

type Kind = Schemas['ImportedName']['kind']
type Change = keyof Schemas['ImportChanges']

const CHANGES: Record<Change, { planned: string; done: string; tone: Tone }> = {
  created: { planned: 'new', done: 'created', tone: 'ok' },
  replaced: { planned: 'replaces', done: 'replaced', tone: 'warn' },
  unchanged: { planned: 'there already', done: 'unchanged', tone: 'muted' },
  skipped: { planned: 'stays as it is', done: 'kept', tone: 'muted' },
  conflicts: { planned: 'conflict', done: 'conflict', tone: 'err' },
}

/** What an import creates or has created, by kind. */
export function Plan({ result }: { result: Result }) {
  const { zone } = usePrefs()
  const { plan, changes, applied } = result
  const states = new Map<string, Change>()
  for (const change of Object.keys(CHANGES) as Change[]) {
    for (const { kind, name } of changes[change]) states.set(`${kind} ${name}`, change)
  }
  const state = (kind: Kind, name: string): ReactNode => {
    const change = states.get(`${kind} ${name}`)
    return change && <Badge tone={CHANGES[change].tone}>{applied ? CHANGES[change].done : CHANGES[change].planned}</Badge>
  }
  const providers: Column<Schemas['ImportedProvider']>[] = [
    { key: 'name', header: 'Provider', cell: (row) => <code>{row.name}</code> },
    { key: 'kind', header: 'API format', from: 'sm', cell: (row) => row.kind },
    { key: 'url', header: 'Base URL', from: 'md', className: 'max-w-72 truncate text-muted', cell: (row) => row.base_url ?? 'default' },
    { key: 'key', header: 'Credential', cell: (row) => (row.has_api_key ? 'in the file' : <span className="text-warn">to be added</span>) },
    { key: 'state', header: '', cell: (row) => state('provider', row.name) },
  ]
  const models: Column<Schemas['ImportedModel']>[] = [
    { key: 'name', header: 'Model', className: 'name max-w-56 truncate', cell: (row) => (applied ? <Link to="/models" search={{ q: row.name }} className="text-accent underline"><code>{row.name}</code></Link> : <code>{row.name}</code>) },
    { key: 'strategy', header: 'Strategy', from: 'sm', cell: (row) => MODES[definitionOf(row).strategy?.mode ?? 'order'].name },
    { key: 'targets', header: 'Targets', className: 'max-w-96 truncate text-muted', from: 'md', cell: (row) => <code title={targetsOf(row).join('\n')}>{targetsOf(row).join(', ')}</code> },
    { key: 'state', header: '', cell: (row) => state('model', row.name) },
  ]
  const keys: Column<Schemas['ImportedKey'] & { budget: string; index: number }>[] = [
    { key: 'name', header: 'Key', className: 'name max-w-48 truncate', cell: (row) => row.name },
    { key: 'prefix', header: 'Shown as', from: 'sm', cell: (row) => <code>{row.key_prefix}</code> },
    { key: 'scopes', header: 'Access', from: 'md', className: 'max-w-64 truncate text-muted', cell: (row) => <code title={row.scopes.join('\n')}>{row.scopes.join(', ')}</code> },
    { key: 'budget', header: 'Budget', from: 'lg', cell: (row) => row.budget },
    { key: 'expires', header: 'Expires', from: 'lg', cell: (row) => time(row.expires_at, zone, 'date') },
    {
      key: 'state',
      header: '',
      cell: (row) => (
        <span className="flex gap-1">
          {row.revoked && <Badge tone="warn">revoked</Badge>}
          {state('key', row.name)}
        </span>
      ),
    },
  ]
  const budgetOf = (index: number): string => {
    const budget = plan.budgets.find((one) => one.key === index)
    return budget ? `${money(budget.hard_limit_usd ?? budget.soft_limit_usd)} ${budget.period}` : '–'
  }
  const lists = [
    plan.providers.length > 0 && { title: plural(plan.providers.length, 'provider'), table: <Table label="Providers" columns={providers} rows={plan.providers} rowKey={(row) => row.name} /> },
    plan.models.length > 0 && { title: plural(plan.models.length, 'model'), table: <Table label="Models" columns={models} rows={plan.models} rowKey={(row) => row.name} /> },
    plan.keys.length > 0 && { title: plural(plan.keys.length, 'key'), table: <Table label="Keys" columns={keys} rows={plan.keys.map((key, index) => ({ ...key, budget: budgetOf(index), index }))} rowKey={(row) => row.index} /> },
  ].filter((list) => list !== false)
  if (lists.length === 0) return <p className="card px-3 py-2 text-muted">The file has nothing that can be imported; the findings say why.</p>
  return lists.map(({ title, table }) => (
    <Section key={title} flush title={title}>
      <div className="max-h-96 overflow-y-auto">{table}</div>
    </Section>
  ))
}

/** A plan has definitions as the API takes them. */
function definitionOf({ definition }: Schemas['ImportedModel']): Definition {
  return definition as Definition
}

function targetsOf(model: Schemas['ImportedModel']): string[] {
  return leavesOf(definitionOf(model).targets).map((target) => `${target.provider}/${target.model}`)
}
