import { afterEach, beforeEach, expect, test, vi } from 'vitest'

const encoded = btoa(JSON.stringify({ sub: 'user', org: 'org', role: 'member', exp: 4_000_000_000 }))
const STORED = JSON.stringify({ token: `head.${encoded}.sign`, email: 'ada@example.com' })

let store: Map<string, string>
let dispatchStorage: (key: string | null) => void

beforeEach(() => {
  store = new Map([['console.session', STORED]])
  vi.resetModules()
  vi.stubGlobal('localStorage', {
    getItem: (key: string) => store.get(key) ?? null,
    setItem: (key: string, value: string) => store.set(key, value),
    removeItem: (key: string) => store.delete(key),
  })
  vi.stubGlobal('addEventListener', (type: string, listener: (event: { key: string | null }) => void) => {
    if (type === 'storage') dispatchStorage = (key) => listener({ key })
  })
})
afterEach(() => vi.unstubAllGlobals())

test('a sign-out in another tab ends the session', async () => {
  const { getSession, subscribe } = await import('./session')
  const listener = vi.fn()
  subscribe(listener)
  expect(getSession()?.email).toBe('ada@example.com')
  store.delete('console.session')
  dispatchStorage('console.session')
  expect(getSession()).toBeNull()
  expect(listener).toHaveBeenCalledOnce()
})

test('a sign-in or a cleared localStorage in another tab is applied', async () => {
  store.clear()
  const { getSession } = await import('./session')
  expect(getSession()).toBeNull()
  store.set('console.session', STORED)
  dispatchStorage('console.session')
  expect(getSession()?.orgId).toBe('org')
  store.clear()
  dispatchStorage(null)
  expect(getSession()).toBeNull()
})

test('changes of other localStorage keys are ignored', async () => {
  const { getSession } = await import('./session')
  const before = getSession()
  store.clear()
  dispatchStorage('console.prefs')
  expect(getSession()).toBe(before)
})
