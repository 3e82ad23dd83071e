/** How providers did in the last hour, from the usage of the organization. */
import { api } from '@/api/client'
import { pollingOptions } from '@/api/query'
import { duration, percent, plural } from '@/lib/format'
import { OWN_CALLS_EXCLUDED } from '@/lib/query'
import { useNow } from '@/lib/useNow'
import type { Tone } from '@/ui'

const HOUR_MS = 3_600_000
const STEP_MS = 300_000
const FAILING = 0.5
const DEGRADED = 0.05

export interface Health {
  tone: Tone
  text: string
}

export function useProviderHealth(): (provider: string) => Health | null {
  const now = useNow(60_000)
  const end = Math.ceil(now / STEP_MS) * STEP_MS
  const query = { from: new Date(end - HOUR_MS).toISOString(), to: new Date(end).toISOString(), by: 'provider' as const, query: OWN_CALLS_EXCLUDED }
  const usage = api.useQuery('get', '/api/v1/usage/breakdown', { params: { query } }, pollingOptions(60_000))
  return (provider) => {
    const row = usage.data?.rows.find((one) => one.key === provider)
    return row ? healthOf(row.requests, row.errors, row.p95_ms) : null
  }
}

export function healthOf(requests: number, errors: number, p95: number | null): Health {
  const share = requests === 0 ? 0 : errors / requests
  const tone = share >= FAILING ? 'err' : share >= DEGRADED ? 'warn' : 'ok'
  const word = share >= FAILING ? 'failing' : share >= DEGRADED ? 'degraded' : 'healthy'
  return { tone, text: `${word}: ${plural(requests, 'request')} in the last hour, ${percent(share)} errors, p95 ${duration(p95)}` }
}
