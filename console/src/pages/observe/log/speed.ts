/** How fast output arrived. */
import type { Schemas } from '@/api/client'

/** Output tokens per second after the first one. Null if it is not known, or all came at once. */
export function tokensPerSecond({ completion_tokens: tokens, latency_ms: latency, ttft_ms: first, cache }: Pick<Schemas['LogRow'], 'completion_tokens' | 'latency_ms' | 'ttft_ms' | 'cache'>): number | null {
  if (!tokens || first === null || latency <= first || cache === 'hit') return null
  return tokens / ((latency - first) / 1000)
}
