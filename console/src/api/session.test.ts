import { afterEach, beforeEach, expect, test, vi } from 'vitest'

const encoded = btoa(JSON.stringify({ sub: 'user', org: 'org', role: 'member', exp: 4_000_000_000 }))
const STORED = JSON.stringify({ token: `head.${encoded}.sign`, email: 'ada@example.com' })

let store: Map<string, string>
let tell: (key: string | null) => void

beforeEach(() => {
  store = new Map([['console.session', STORED]])
  vi.resetModules()
  vi.stubGlobal('localStorage', {
    getItem: (key: string) => store.get(key) ?? null,
    setItem: (key: string, value: string) => store.set(key, value),
    removeItem: (key: string) => store.delete(key),
  })
  vi.stubGlobal('addEventListener', (type: string, listener: (event: { key: string | null }) => void) => {
    if (type === 'storage') tell = (key) => listener({ key })
  })
})
afterEach(() => vi.unstubAllGlobals())

test('a tab follows another one that signs out', async () => {
  const { getSession, subscribe } = await import('./session')
  const heard = vi.fn()
  subscribe(heard)
  expect(getSession()?.email).toBe('ada@example.com')
  store.delete('console.session')
  tell('console.session')
  expect(getSession()).toBeNull()
  expect(heard).toHaveBeenCalledOnce()
})

test('a tab follows another one that signs in, and one that clears the store', async () => {
  store.clear()
  const { getSession } = await import('./session')
  expect(getSession()).toBeNull()
  store.set('console.session', STORED)
  tell('console.session')
  expect(getSession()?.orgId).toBe('org')
  store.clear()
  tell(null)
  expect(getSession()).toBeNull()
})

test('a change of something else in the store changes nothing', async () => {
  const { getSession } = await import('./session')
  const before = getSession()
  store.clear()
  tell('console.prefs')
  expect(getSession()).toBe(before)
})
