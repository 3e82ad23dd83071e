import { expect, test } from 'vitest'
import type { Schemas } from '@/api/client'
import { draftOf, serverChange } from './draft'

const SERVER = {
  name: 'math',
  url: 'https://mcp.example.com/mcp',
  transport: 'auto',
  auth: { type: 'headers' },
  has_secrets: true,
  identity: 'none',
  forward_headers: [],
  allow: ['get_*'],
  deny: [],
  read_only: false,
  pin: true,
  timeout_ms: 5000,
  prices: { add: 0.001 },
  instructions: null,
  enabled: true,
  created_at: '',
  updated_at: '',
  status: { state: 'ok', era: null, protocol_version: null, tools: 1, last_ok_at: null, last_error: null },
} satisfies Schemas['McpServer']

test('an unchanged form keeps the secrets and everything else', () => {
  const change = serverChange(draftOf(SERVER), SERVER)
  expect(change).not.toHaveProperty('auth')
  expect(change).not.toHaveProperty('headers')
  expect(change).toMatchObject({ url: SERVER.url, transport: 'auto', identity: 'none', allow: ['get_*'], timeout_ms: 5000, prices: { add: 0.001 }, instructions: null, pin: true })
})

test('another kind of credentials replaces the stored one', () => {
  expect(serverChange({ ...draftOf(SERVER), auth: 'none' }, SERVER).auth).toEqual({ type: 'none' })
  expect(serverChange({ ...draftOf(SERVER), authHeaders: 'Authorization: Bearer x:y' }, SERVER).auth).toEqual({ type: 'headers', headers: { Authorization: 'Bearer x:y' } })
  expect(serverChange({ ...draftOf(SERVER), auth: 'per_user_headers', userHeaders: 'Authorization, X-Team' }, SERVER).auth).toEqual({ type: 'per_user_headers', names: ['Authorization', 'X-Team'] })
})

test('the server is told who calls, over the chosen transport', () => {
  expect(serverChange({ ...draftOf(SERVER), tellsIdentity: true, transport: 'sse' }, SERVER)).toMatchObject({ identity: 'claims', transport: 'sse' })
})

test('a new server without credentials says so', () => {
  expect(serverChange(draftOf(null), null).auth).toEqual({ type: 'none' })
})
