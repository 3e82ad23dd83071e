import type { Schemas } from '@/api/client'

export interface CostLine {
  name: string
  tokens: number
  rate: number | null
  amount: number | null
}

type Usage = Pick<Schemas['LogRow'], 'prompt_tokens' | 'completion_tokens' | 'cached_tokens' | 'reasoning_tokens'>

/** `prompt_tokens` includes cached and `completion_tokens` includes reasoning tokens; each line here is disjoint. */
export function costLines(usage: Usage, price: Schemas['Price'] | undefined): CostLine[] {
  const cached = usage.cached_tokens ?? 0
  const reasoning = usage.reasoning_tokens ?? 0
  const lines: [string, number, number | null | undefined][] = [
    ['Input', (usage.prompt_tokens ?? 0) - cached, price?.input_per_mtok],
    ['Input, cached', cached, price?.cache_read_per_mtok ?? price?.input_per_mtok],
    ['Output', (usage.completion_tokens ?? 0) - reasoning, price?.output_per_mtok],
    ['Output, reasoning', reasoning, price?.reasoning_per_mtok ?? price?.output_per_mtok],
  ]
  return lines
    .filter(([name, tokens]) => tokens > 0 || !name.includes(','))
    .map(([name, tokens, rate]) => ({ name, tokens, rate: rate ?? null, amount: rate == null ? null : (tokens * rate) / 1e6 }))
}
