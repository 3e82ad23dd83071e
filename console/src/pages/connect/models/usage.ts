/** Usage of the models that named models stand for. Log rows have the model that served, not the name that was asked for. */
import { useQueries } from '@tanstack/react-query'
import { api, type Schemas } from '@/api/client'
import { pollingOptions } from '@/api/query'
import { useRange } from '@/lib/useRange'

export type Target = Schemas['ModelTarget']
type Sums = Pick<Schemas['BreakdownRow'], 'requests' | 'errors' | 'cost_usd' | 'unpriced'>

export interface TargetUsage extends Sums {
  /** `provider/model` */
  name: string
}

/** One query for each provider. */
const MAX_PROVIDERS = 20

/** All targets of a model, those of groups included. */
export function leavesOf(targets: readonly Target[]): Target[] {
  return targets.flatMap((target) => (target.targets ? leavesOf(target.targets) : [target]))
}

/** Usage of the targets of a model in the range of the page; null while it loads, or if it is not known. */
export function useTargetUsage(models: readonly { targets: readonly Target[] }[]): (targets: readonly Target[]) => TargetUsage[] | null {
  const { from, to } = useRange()
  const used = models.flatMap((model) => leavesOf(model.targets)).flatMap((target) => target.provider ?? [])
  const providers = [...new Set(used)].sort().slice(0, MAX_PROVIDERS)
  const results = useQueries({
    queries: providers.map((provider) => ({ ...api.queryOptions('get', '/api/v1/usage/breakdown', { params: { query: { by: 'model', provider, from, to } } }), ...pollingOptions(60_000) })),
  })
  const rows = new Map(providers.map((provider, index) => [provider, results[index]?.data?.rows]))
  return (targets) => sumTargets(targets, (provider) => rows.get(provider))
}

export function sumTargets(targets: readonly Target[], rowsOf: (provider: string) => readonly Schemas['BreakdownRow'][] | undefined): TargetUsage[] | null {
  const found = new Map<string, TargetUsage>()
  for (const { provider, model } of leavesOf(targets)) {
    const rows = rowsOf(provider ?? '')
    if (!rows || !provider || !model) return null
    found.set(`${provider}/${model}`, sum(`${provider}/${model}`, rows.filter((row) => row.key !== null && matches(model, row.key))))
  }
  return [...found.values()]
}

/** Adds up sums. The cost is null if requests have no price and none has one. */
export function sum(name: string, rows: readonly Sums[]): TargetUsage {
  const total = (field: 'requests' | 'errors' | 'unpriced') => rows.reduce((before, row) => before + row[field], 0)
  const priced = rows.flatMap((row) => row.cost_usd ?? [])
  return { name, requests: total('requests'), errors: total('errors'), unpriced: total('unpriced'), cost_usd: priced.length > 0 || rows.length === 0 ? priced.reduce((before, cost) => before + cost, 0) : null }
}

function matches(pattern: string, model: string): boolean {
  return pattern.endsWith('*') ? model.startsWith(pattern.slice(0, -1)) : model === pattern
}
