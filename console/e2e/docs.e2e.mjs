import assert from 'node:assert/strict'
import test from 'node:test'
import { inspect, openPage, setUp, signUp } from './harness.mjs'

const shared = setUp()

/** Opens a page of the site, and waits until its scripts answer to keys and clicks. */
async function openDocs(name) {
  const page = await openPage(shared.browser, shared.gateway, { path: `/docs/${name}` })
  await page.waitForFunction(() => document.querySelector('#app')?.__vue_app__)
  return page
}

test('pages of the documentation in both themes and widths, without violations of the policy', async () => {
  const page = await openPage(shared.browser, shared.gateway, { path: '/docs/' })
  await page.getByRole('heading', { level: 1 }).first().waitFor()
  await inspect(page, 'docs-home')
  for (const name of ['quick-start', 'concepts', 'clients/python', 'providers/', 'providers/bedrock', 'routing', 'errors', 'api/', 'api/keys', 'changelog']) {
    const response = await page.goto(`/console/docs/${name}`)
    assert.equal(response.status(), 200, name)
    await page.locator('.vp-doc h1').waitFor()
    await inspect(page, `docs-${name.replaceAll('/', '-')}`)
  }
  page.clean()
})

test('search finds a page by a word of its text', async () => {
  const page = await openDocs('quick-start')
  await page.keyboard.press('Control+k')
  await page.getByRole('searchbox').fill('budget_exceeded')
  await page.locator('.result').first().waitFor()
  await inspect(page, 'docs-search')
  await page.locator('a.result[href*="/errors"]').first().click()
  await page.waitForURL(/\/console\/docs\/errors/)
  page.clean()
})

test('the theme can be switched, and links lead on without loading the page again', async () => {
  const page = await openDocs('concepts')
  await page.getByRole('switch', { name: /theme/i }).first().click()
  assert.ok(await page.locator('html.dark').count())
  await page.evaluate(() => Object.assign(window, { stays: true }))
  await page.getByRole('link', { name: 'Budgets', exact: true }).first().click()
  await page.getByRole('heading', { level: 1, name: 'Budgets' }).waitFor()
  assert.ok(await page.evaluate(() => 'stays' in window))
  page.clean()
})

test('an address that does not exist is a page of the site with status 404', async () => {
  const page = await openPage(shared.browser, shared.gateway, { path: '/docs/' })
  const response = await page.goto('/console/docs/nowhere')
  assert.equal(response.status(), 404)
  await page.getByText('PAGE NOT FOUND').waitFor()
  page.clean({ allow: /404/ })
})

test('every page of the console links to its documentation', async () => {
  const person = await signUp(shared.gateway)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/org/budgets' })
  const link = page.getByRole('link', { name: 'Documentation of this page' })
  assert.equal(await link.getAttribute('href'), '/console/docs/budgets')
  const [opened] = await Promise.all([page.context().waitForEvent('page'), link.click()])
  await opened.getByRole('heading', { level: 1, name: 'Budgets' }).waitFor()
  page.clean()
  const login = await openPage(shared.browser, shared.gateway, { path: '/login' })
  assert.equal(await login.getByRole('link', { name: 'Documentation' }).getAttribute('href'), '/console/docs/')
})
