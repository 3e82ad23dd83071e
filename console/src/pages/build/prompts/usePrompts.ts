import { api, type Schemas } from '@/api/client'
import { cursorPaging } from '@/api/paging'

/** The loaded pages of prompts. */
export function usePrompts() {
  const list = api.useInfiniteQuery('get', '/api/v1/prompts', { params: { query: { limit: 200 } } }, cursorPaging)
  return { list, prompts: list.data?.pages.flatMap((page) => page.prompts) ?? [] }
}

/** Prompts grouped by namespace, both sorted. */
export function byNamespace(prompts: readonly Schemas['Prompt'][]): [string, Schemas['Prompt'][]][] {
  const groups = new Map<string, Schemas['Prompt'][]>()
  for (const prompt of prompts) groups.set(prompt.namespace, [...(groups.get(prompt.namespace) ?? []), prompt])
  return [...groups]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([namespace, rows]) => [namespace, rows.toSorted((a, b) => a.slug.localeCompare(b.slug))])
}
