/** Saved views: saved, shared, renamed and deleted on three pages, and moved out of the browser. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { call, chat, inspect, joinAs, openPage, setUp, signUp, waitFor } from './harness.mjs'

let owner
let viewer
const shared = setUp(undefined, async ({ gateway }) => {
  owner = await signUp(gateway)
  viewer = await joinAs(gateway, owner, 'viewer')
  for (const user of ['ada', 'ada', 'maria']) await chat(gateway, owner.key, { headers: { 'X-Gateway-User': user } })
  await waitFor('the rows', async () => (await call(gateway, owner.token, 'GET', '/api/v1/logs')).logs.length === 3)
})

const count = (page, number) => waitFor(`${number} rows`, async () => (await page.locator('[data-row]').count()) === number)
const menu = (page, name) => page.getByRole('main').getByRole('button', { name, exact: true })
const item = (page, name) => page.getByRole('menuitem', { name })
const stored = (person = owner) => call(shared.gateway, person.token, 'GET', `/api/v1/orgs/${owner.org.id}/views`).then(({ views }) => views)

test('a view is saved, shared, renamed and deleted, and others open it', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person: owner, path: '/logs?query=user%3Aada&sort=latency&range=7d' })
  await count(page, 2)
  await menu(page, 'Views').click()
  await item(page, 'Save this view…').click()
  const dialog = page.getByRole('dialog', { name: 'Save this view' })
  await dialog.getByLabel('Name').fill('Slow for ada')
  await inspect(page, 'views-save')
  await dialog.getByRole('button', { name: 'Save' }).click()
  await page.getByText('View “Slow for ada” saved').waitFor()
  assert.deepEqual((await stored()).map(({ name, query, sort, range, shared: isShared }) => [name, query, sort, range, isShared]), [['Slow for ada', 'user:ada', 'latency', '7d', false]])
  assert.deepEqual(await stored(viewer), [])

  await menu(page, 'Slow for ada').click()
  await item(page, 'Share with the organization').click()
  await page.getByText('Slow for ada is shared with the organization').waitFor()
  const other = await openPage(shared.browser, shared.gateway, { person: viewer, path: '/logs' })
  await menu(other, 'All requests').click()
  await inspect(other, 'views-shared')
  await item(other, 'Slow for ada').click()
  await count(other, 2)
  assert.match(other.url(), /query=user%3Aada/)
  await menu(other, 'Slow for ada').click()
  assert.equal(await item(other, 'Delete…').count(), 0, 'a viewer cannot delete the view of another')
  await other.keyboard.press('Escape')
  other.clean()

  await menu(page, 'Slow for ada').click()
  await inspect(page, 'views-menu')
  await item(page, 'Copy link to this view').click()
  await page.getByText('Link to this view copied').waitFor()
  const link = await page.evaluate(() => navigator.clipboard.readText())
  assert.match(decodeURIComponent(link), /query=user:ada/)
  await menu(page, 'Slow for ada').click()
  await item(page, 'Rename…').click()
  await page.getByRole('dialog').getByLabel('Name').fill('Ada')
  await page.getByRole('dialog').getByRole('button', { name: 'Rename' }).click()
  await menu(page, 'Ada').click()
  await item(page, 'All requests').click()
  await count(page, 3)
  await page.goto(link)
  await count(page, 2)
  await menu(page, 'Ada').click()
  await item(page, 'Delete…').click()
  await page.getByRole('dialog').getByText('disappears for everyone').waitFor()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete view' }).click()
  await menu(page, 'Views').waitFor()
  assert.deepEqual(await stored(), [])
  page.clean()
})

test('a view brings its columns if they were saved with it, and a name that is taken is replaced', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person: owner, path: '/logs?query=user%3Amaria' })
  await count(page, 1)
  const save = async (withColumns) => {
    await page.getByRole('main').getByRole('button', { name: /^(Views|Maria)$/ }).click()
    await item(page, 'Save this view…').click()
    await page.getByRole('dialog').getByLabel('Name').fill('Maria')
    if (withColumns) await page.getByLabel('With the columns that are shown now').check()
    await page.getByRole('dialog').getByRole('button', { name: withColumns ? 'Replace' : 'Save' }).click()
    await page.getByText('View “Maria” saved').first().waitFor()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
  }
  await save(false)
  assert.equal((await stored())[0].columns, null)
  await save(true)
  const columns = (await stored())[0].columns
  assert.ok(columns.includes('latency'), String(columns))
  await page.getByRole('button', { name: 'Columns and row height' }).click()
  await page.getByRole('menuitemcheckbox', { name: 'Latency' }).click()
  await page.keyboard.press('Escape')
  const header = page.getByRole('columnheader', { name: 'Latency' })
  await header.waitFor({ state: 'detached' })
  await menu(page, 'Maria').click()
  await item(page, 'Maria').click()
  await header.waitFor()
  await call(shared.gateway, owner.token, 'DELETE', `/api/v1/orgs/${owner.org.id}/views/${(await stored())[0].id}`)
  page.clean()
})

test('views that are only in this browser are offered for saving, and what fails stays', async () => {
  await call(shared.gateway, owner.token, 'POST', `/api/v1/orgs/${owner.org.id}/views`, { name: 'Taken', page: 'logs', query: 'status:ok' })
  const views = [
    { name: 'Old one', search: { query: 'user:ada', own: 'show' } },
    { name: 'Taken', search: { sort: 'cost' } },
  ]
  const prefs = { logs: { [owner.userId]: { columns: {}, widths: {}, facets: 'open', views: { [owner.org.id]: views } } } }
  const page = await openPage(shared.browser, shared.gateway, { person: owner, path: '/logs', prefs })
  await count(page, 3)
  await menu(page, 'All requests').click()
  await page.getByText('Only in this browser').waitFor()
  await item(page, 'Save the views of this browser…').click()
  const dialog = page.getByRole('dialog', { name: 'Save the views of this browser' })
  await dialog.getByRole('button', { name: 'Save 2 views' }).click()
  await dialog.getByText('You have a view with this name').waitFor()
  await inspect(page, 'views-browser')
  assert.deepEqual((await stored()).map(({ name, query }) => [name, query]), [['Old one', 'user:ada source:*'], ['Taken', 'status:ok']])
  await dialog.getByRole('button', { name: 'Remove Taken from this browser' }).click()
  await page.keyboard.press('Escape')
  await menu(page, 'All requests').click()
  assert.equal(await page.getByText('Only in this browser').count(), 0)
  page.clean({ allow: /409/ })
})

test('sessions and usage have views of their own, and usage is grouped as it was', async () => {
  for (const [path, name] of [['/sessions?', 'Sessions of ada'], ['/usage?by=provider&', 'Usage of ada']]) {
    const page = await openPage(shared.browser, shared.gateway, { person: owner, path: `${path}query=user%3Aada` })
    await menu(page, 'Views').click()
    await item(page, 'Save this view…').click()
    await page.getByRole('dialog').getByLabel('Name').fill(name)
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
    await menu(page, name).click()
    await inspect(page, `views-${path.split(/\W/)[1]}`)
    assert.equal(await page.getByRole('menuitem', { name: 'Old one' }).count(), 0, 'views of another page')
    await item(page, /^All/).click()
    await waitFor('the page without a query', async () => !page.url().includes('query='))
    page.clean()
  }
  const page = await openPage(shared.browser, shared.gateway, { person: owner, path: '/usage' })
  await page.getByRole('region', { name: 'Usage by model' }).waitFor()
  await menu(page, 'All requests').click()
  await item(page, 'Usage of ada').click()
  await page.getByRole('region', { name: 'Usage by provider' }).getByRole('row', { name: /^sandbox/ }).waitFor()
  await menu(page, 'Usage of ada').waitFor()
  page.clean()
})
