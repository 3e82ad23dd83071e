import { api, type Schemas } from '@/api/client'
import { parseResponse } from '@/lib/conversation'

export interface CallFacts {
  answer: string
  provider: string
  model: string | null
  costUsd: number | null
  latencyMs: number
  status: number
}

/** The logged call behind a verdict: its answer, cost and latency. Log rows do not change, so they are read once. */
export function useCall(logId: number | null): { call: CallFacts | undefined; failed: boolean } {
  const query = api.useQuery('get', '/api/v1/logs/{logId}', { params: { path: { logId: logId ?? 0 } } }, { enabled: logId !== null, staleTime: Number.POSITIVE_INFINITY, gcTime: 60_000, select: factsOf })
  return { call: query.data, failed: query.isError }
}

function factsOf(log: Schemas['LogDetail']): CallFacts {
  const parts = parseResponse(log.response)?.messages.flatMap((message) => message.parts) ?? []
  const answer = parts.map((part) => (part.kind === 'text' || part.kind === 'refusal' ? part.text : part.kind === 'tool_call' ? `${part.name}(…)` : '')).filter(Boolean).join('\n')
  return { answer, provider: log.provider, model: log.model, costUsd: log.cost_usd, latencyMs: log.latency_ms, status: log.status }
}
