/** What the logs page costs: data over the wire, and memory while rows arrive. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { call, chat, countApiBytes, fillLogs, openPage, setUp, signUp, waitFor } from './harness.mjs'

const shared = setUp()
const MAX_LOGS_KB = 60
const LIVE_ROWS = 10_000
const STEP = 2_000
/** What may be kept besides the rows of the list itself, which has a maximum. */
const MAX_GROWTH_MB = 4
const MAX_ELEMENTS = 2_500
const WORDS = 'order invoice refund customer delivery address payment error export report summary ticket month price contract question answer account password login browser window printer network address color number yesterday tomorrow please explain compare translate'.split(' ')

/** Texts that differ, so that compression has to work as hard as on real ones. */
function sentence(seed) {
  let state = seed * 2_654_435_761 + 12_345
  const next = () => (state = (state * 1_103_515_245 + 12_345) % 2_147_483_648)
  return Array.from({ length: 30 }, () => WORDS[next() % WORDS.length]).join(' ')
}

test(`a page of 200 requests is at most ${MAX_LOGS_KB} KB of data`, async () => {
  const person = await signUp(shared.gateway)
  const send = (at) => chat(shared.gateway, person.key, { text: `${at}: ${sentence(at)}`, headers: { 'X-Gateway-User': `user-${at % 37}`, 'X-Gateway-Session': `session-${at % 53}`, 'X-Gateway-Metadata': JSON.stringify({ env: 'prod', ticket: at }) } })
  for (let at = 0; at < 220; at += 10) await Promise.all(Array.from({ length: 10 }, (_, offset) => send(at + offset)))
  await waitFor('the rows', async () => (await call(shared.gateway, person.token, 'GET', '/api/v1/usage/summary')).requests >= 220, 30_000)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/account' })
  const traffic = await countApiBytes(page)
  await page.goto('/console/logs')
  await page.getByText('200 rows loaded, more below').waitFor()
  await page.getByRole('region', { name: 'Volume' }).getByText('220 requests').waitFor()
  await page.getByRole('complementary', { name: 'Filters' }).getByText('sandbox-small').waitFor()
  const kilobytes = traffic.bytes() / 1024
  console.log(`logs with 200 rows: ${kilobytes.toFixed(1)} KB of API data`)
  assert.ok(kilobytes <= MAX_LOGS_KB, `${kilobytes} KB`)
  assert.ok(kilobytes > 5, 'the rows were counted')
})

test(`memory does not grow while ${LIVE_ROWS} requests arrive`, async () => {
  const person = await signUp(shared.gateway)
  await chat(shared.gateway, person.key, { text: 'The first' })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/logs' })
  await page.getByText(/^live$/i).first().waitFor()
  const devtools = await page.context().newCDPSession(page)
  const heapMb = async () => {
    await devtools.send('HeapProfiler.collectGarbage')
    return (await devtools.send('Runtime.getHeapUsage')).usedSize / 1024 / 1024
  }
  const sizes = []
  for (let sent = 0; sent < LIVE_ROWS; sent += STEP) {
    await fillLogs(shared.gateway, person.key, STEP, sent)
    await waitFor('the rows', async () => (await call(shared.gateway, person.token, 'GET', '/api/v1/usage/summary')).requests >= sent + STEP, 60_000)
    // The page has to have them too: memory that does not grow because nothing arrived proves nothing.
    const { logs } = await call(shared.gateway, person.token, 'GET', '/api/v1/logs?limit=1')
    await page.locator(`[data-row="${logs[0].id}"]`).waitFor({ timeout: 60_000 })
    await page.waitForTimeout(1500)
    sizes.push(await heapMb())
  }
  const elements = await page.evaluate(() => document.querySelectorAll('*').length)
  console.log(`heap after each ${STEP} live rows: ${sizes.map((size) => size.toFixed(1)).join(', ')} MB; ${elements} elements`)
  assert.ok(elements <= MAX_ELEMENTS, `${elements} elements`)
  assert.ok(sizes.at(-1) - sizes[0] <= MAX_GROWTH_MB, `${sizes} MB`)
  page.clean()
})
