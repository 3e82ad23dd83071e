import { expect, test } from 'vitest'
import type { Schemas } from '@/api/client'
import { importedTraffic } from './imported'

const NOW = Date.parse('2026-11-17T00:00:00Z')

function key(id: string, imported: string | null, fields: Partial<Schemas['Key']> = {}): Schemas['Key'] {
  return { id, name: id, key_prefix: 'sk-gateway-00000000', scopes: ['*'], app_id: null, class: null, wait_ms: null, max_priority: null, created_at: '2026-11-01T00:00:00Z', expires_at: null, revoked_at: null, last_used_at: null, created_by: null, imported, ...fields }
}

test('calls of imported keys are counted, those of others are not', () => {
  const keys = [key('a', 'litellm'), key('b', 'litellm'), key('c', null), key('d', 'litellm', { revoked_at: '2026-11-02T00:00:00Z' })]
  const rows = [{ key: 'a', requests: 7 }, { key: 'c', requests: 100 }, { key: 'd', requests: 5 }, { key: null, requests: 1 }]
  expect(importedTraffic(keys, rows, NOW)).toEqual({ keys: 2, inUse: 1, calls: 7 })
  expect(importedTraffic(keys.slice(2), rows, NOW)).toBeNull()
})
