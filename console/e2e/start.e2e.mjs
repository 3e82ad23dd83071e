import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import test from 'node:test'
import { promisify } from 'node:util'
import { inspect, openPage, setUp, signUp, waitFor } from './harness.mjs'

const shared = setUp()
const run = promisify(execFile)

async function signUpThroughForm(page, slug) {
  await page.getByLabel('Organization').fill(slug)
  await page.getByLabel('Email').fill(`${slug}@example.com`)
  await page.getByLabel('Password', { exact: true }).fill('correct horse battery')
  await page.getByRole('button', { name: 'Create organization' }).click()
  await page.getByRole('heading', { name: 'First steps' }).waitFor()
}

test('from sign-up to the first request on the screen, with the curl that was copied', async () => {
  const page = await openPage(shared.browser, shared.gateway, { path: '/signup' })
  await signUpThroughForm(page, 'first-run')
  const secret = await page.locator('[data-secret]').innerText()
  assert.match(secret, /^sk-gateway-[0-9a-f]{64}$/)
  await page.getByText('Waiting…').waitFor()
  await inspect(page, 'start')

  const shown = await page.getByRole('region', { name: 'curl' }).innerText()
  assert.ok(!shown.includes(secret), 'the key is masked on the screen')
  await page.getByRole('button', { name: 'Copy curl' }).click()
  const command = await page.evaluate(() => navigator.clipboard.readText())
  assert.ok(command.includes(secret) && command.includes(shared.gateway.url), 'the copied text has the real key and address')
  const { stdout } = await run('sh', ['-c', command])
  assert.match(stdout, /The sandbox read: Hello!/)
  assert.ok(!command.includes('X-Gateway') && command.includes('/sdk/v1/'), 'a base URL and a key are enough')

  const drawer = page.getByRole('dialog', { name: /^Request \d+/ })
  await drawer.waitFor()
  await drawer.getByText('The sandbox read: Hello!').waitFor()
  assert.match(await page.getByRole('status').filter({ hasText: 'Your first request' }).innerText(), /Your first request: 200 in \d/)
  await inspect(page, 'start-arrived')
  await page.keyboard.press('Escape')
  await drawer.waitFor({ state: 'detached' })

  await page.getByRole('button', { name: 'Create a key for an application' }).click()
  const form = page.getByRole('dialog', { name: 'Create key' })
  await form.getByLabel('Name').fill('checkout')
  await form.getByRole('button', { name: 'Create key' }).click()
  const made = page.getByRole('dialog', { name: 'checkout is ready' })
  assert.notEqual(await made.locator('[data-secret]').innerText(), secret)
  await made.getByRole('button', { name: 'Done' }).click()

  const kept = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, location.href]))
  assert.ok(!kept.includes(secret), 'the raw key is stored nowhere')
  await page.reload()
  await page.getByRole('button', { name: 'Create another key' }).click()
  await page.locator('[data-secret]').waitFor()
  assert.notEqual(await page.locator('[data-secret]').innerText(), secret)
  page.clean()
})

test('with the keyboard alone', async () => {
  const page = await openPage(shared.browser, shared.gateway, { path: '/signup' })
  // The first field has autofocus.
  await page.waitForFunction(() => document.activeElement instanceof HTMLInputElement)
  const fields = ['Keys only', 'keys-only', 'keys@example.com', 'correct horse battery']
  for (const [at, value] of fields.entries()) {
    if (at === 1) await page.keyboard.press('Control+a')
    await page.keyboard.type(value)
    await page.keyboard.press('Tab')
  }
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'First steps' }).waitFor()
  await page.getByRole('tab', { name: 'curl' }).focus()
  await page.keyboard.press('ArrowRight')
  await page.getByRole('region', { name: 'Python' }).waitFor()
  await page.keyboard.press('ArrowRight')
  await page.getByRole('region', { name: 'TypeScript' }).waitFor()
  await page.keyboard.press('ArrowRight')
  await page.getByRole('region', { name: 'Your own tool' }).getByText(`${shared.gateway.url}/sdk/v1`).waitFor()
  await page.keyboard.press('ArrowLeft')
  await page.getByRole('region', { name: 'TypeScript' }).waitFor()
  await page.keyboard.press('ArrowLeft')
  await page.getByRole('region', { name: 'Python' }).waitFor()
  await page.keyboard.press('c')
  await waitFor('the copy', async () => (await page.evaluate(() => navigator.clipboard.readText())).startsWith('from openai import OpenAI'))
  page.clean()
})

test('without a terminal the console sends the request itself', async () => {
  const page = await openPage(shared.browser, shared.gateway, { path: '/signup' })
  await signUpThroughForm(page, 'from-here')
  await page.getByRole('button', { name: 'Send it from here' }).click()
  await page.getByRole('dialog', { name: /^Request \d+/ }).waitFor()
  page.clean()
})

test('after a minute without a request likely causes are listed', async () => {
  const person = await signUp(shared.gateway)
  const page = await openPage(shared.browser, shared.gateway, { path: '/login' })
  await page.clock.install()
  await page.getByLabel('Email').fill(person.email)
  await page.getByLabel('Password', { exact: true }).fill(person.password)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('link', { name: 'Show me how' }).click()
  await page.getByText('Waiting…').waitFor()
  await page.clock.runFor(61_000)
  await page.getByText('Nothing yet. Most often it is one of these:').waitFor()
  await inspect(page, 'start-late')
  page.clean()
})
