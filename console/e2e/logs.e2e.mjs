import assert from 'node:assert/strict'
import test from 'node:test'
import { call, chat, inspect, joinAs, openPage, setUp, signUp, waitFor } from './harness.mjs'

let person
const shared = setUp({}, async ({ gateway }) => {
  person = await signUp(gateway, { plan: 'enterprise' })
})

const rowsOf = (page) => page.getByRole('grid', { name: 'Requests' }).getByRole('row')
const query = async (page, text) => {
  await page.getByRole('combobox', { name: 'Query' }).fill(text)
  await page.keyboard.press('Escape')
  await page.keyboard.press('Enter')
}
const drawerOf = (page) => page.getByRole('dialog', { name: /^Request \d+/ })

test('before the first request the page says how to send one', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/logs' })
  await page.getByRole('heading', { name: 'No requests in this range' }).waitFor()
  await inspect(page, 'logs-empty')
  page.clean()
})

test('rows are streamed live, are pending while paused, and are filtered', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/logs' })
  await page.getByText('Live', { exact: true }).waitFor()
  await chat(shared.gateway, person.key, { text: 'The first live row', headers: { 'X-Gateway-User': 'ada' } })
  await page.getByText('The first live row').waitFor()

  await page.keyboard.press('Space')
  await page.getByText('Paused', { exact: true }).waitFor()
  for (let at = 0; at < 3; at++) await chat(shared.gateway, person.key, { text: `While paused ${at}` })
  await page.getByRole('button', { name: '3 new' }).waitFor()
  assert.equal(await page.getByText('While paused 2').count(), 0)
  await page.getByRole('button', { name: '3 new' }).click()
  await page.getByText('While paused 2').waitFor()
  await page.keyboard.press('Space')
  await inspect(page, 'logs')

  await query(page, 'user:ada')
  await waitFor('the query in the address', async () => page.url().includes('query=user%3Aada'))
  await waitFor('one row', async () => (await rowsOf(page).count()) === 2)
  await chat(shared.gateway, person.key, { text: 'Of nobody' })
  await chat(shared.gateway, person.key, { text: 'Of ada again', headers: { 'X-Gateway-User': 'ada' } })
  await page.getByText('Of ada again').waitFor()
  assert.equal(await page.getByText('Of nobody').count(), 0, 'a row that does not match is not added')

  await page.getByRole('button', { name: 'Clear the query' }).click()
  await page.getByText('Of nobody').waitFor()
  await page.goto('/console/logs?status=503')
  await page.getByRole('heading', { name: 'No requests match' }).waitFor()
  await waitFor('the query of the earlier address', async () => (await page.getByRole('combobox', { name: 'Query' }).inputValue()) === 'status:503')
  await inspect(page, 'logs-no-match')
  await page.getByRole('main').getByRole('button', { name: 'Clear', exact: true }).last().click()
  await page.getByText('The first live row').waitFor()
  page.clean()
})

test('full-text search finds rows, marks the words, and new matching rows are added', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/logs' })
  const { logId } = await chat(shared.gateway, person.key, { text: 'A zebra crossed the road' })
  await page.getByText('A zebra crossed the road').waitFor()
  await page.keyboard.press('/')
  await page.keyboard.type('zebra')
  await page.keyboard.press('Enter')
  await waitFor('the search', async () => page.url().includes('query=zebra'))
  await waitFor('one row', async () => (await rowsOf(page).count()) === 2)
  await page.getByRole('grid').locator('mark', { hasText: 'zebra' }).waitFor()
  await page.getByRole('heading', { name: 'Logs' }).click()
  await chat(shared.gateway, person.key, { text: 'No animal here' })
  await chat(shared.gateway, person.key, { text: 'Another zebra' })
  await page.getByText('Another zebra').waitFor()
  assert.equal(await page.getByText('No animal here').count(), 0)
  await page.locator(`[data-row="${logId}"]`).click()
  await drawerOf(page).locator('mark', { hasText: 'zebra' }).first().waitFor()
  page.clean()
})

test('the drawer: conversation, timing with a fallback, cost, evals, details, raw; all by keyboard', async () => {
  // No server listens on the default vLLM port.
  const sent = await chat(shared.gateway, person.key, {
    text: 'Does the fallback work?',
    headers: { 'X-Gateway-Provider': 'vllm', 'X-Gateway-Fallback': 'sandbox/sandbox-large', 'X-Gateway-Retry': '1', 'X-Gateway-Session': 'drawer', 'X-Gateway-Metadata': '{"feature":"drawer"}' },
  })
  assert.equal(sent.status, 200)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/logs' })
  await page.getByText('Does the fallback work?').waitFor()
  await page.keyboard.press('j')
  await page.keyboard.press('Enter')
  const drawer = drawerOf(page)
  await drawer.waitFor()
  assert.match(page.url(), new RegExp(`log=${sent.logId}`))
  await inspect(page, 'log-conversation')

  await page.keyboard.press('2')
  await drawer.getByRole('img', { name: /^Attempts over time/ }).waitFor()
  const attempts = drawer.getByRole('region', { name: 'Attempts' }).getByRole('row')
  assert.equal(await attempts.count(), 4, 'the header, the first attempt, a retry and the fallback')
  await inspect(page, 'log-timing')

  await page.keyboard.press('3')
  await drawer.getByRole('region', { name: 'Cost by class of token' }).waitFor()
  await inspect(page, 'log-cost')
  await page.keyboard.press('4')
  await drawer.getByRole('heading', { name: 'No verdict yet' }).waitFor()
  await inspect(page, 'log-evals')
  await call(shared.gateway, person.token, 'POST', '/api/v1/eval-results', { subject_type: 'log', subject_id: sent.logId, source: 'my-checker', score: 0.25, passed: false })
  await page.keyboard.press('5')
  await drawer.getByText(String(sent.logId), { exact: true }).waitFor()
  await inspect(page, 'log-details')
  await page.keyboard.press('4')
  await page.reload()
  await drawer.getByText('my-checker').waitFor()
  await page.keyboard.press('6')
  await drawer.getByLabel('Find in bodies').fill('fallback')
  await drawer.locator('mark').first().waitFor()
  await inspect(page, 'log-raw')

  await page.getByRole('heading', { name: 'Logs' }).click()
  await page.keyboard.press('1')
  await page.keyboard.press('c')
  await page.getByText('Copied as curl').waitFor()
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /X-Gateway-Provider: vllm/)
  await page.keyboard.press('j')
  await waitFor('the next row', async () => !page.url().includes(`log=${sent.logId}`))
  await page.keyboard.press('k')
  await waitFor('back again', async () => page.url().includes(`log=${sent.logId}`))
  await page.keyboard.press('f')
  await page.getByRole('grid', { name: 'Requests' }).waitFor({ state: 'hidden' })
  await page.keyboard.press('f')
  await page.keyboard.press('Escape')
  await drawer.waitFor({ state: 'detached' })
  page.clean()
})

test('a streamed response is shown aggregated, and a missing body is explained', async () => {
  const streamed = await chat(shared.gateway, person.key, { text: 'Stream it', body: { stream: true } })
  const bare = await chat(shared.gateway, person.key, { text: 'Keep nothing', headers: { 'X-Gateway-Log': 'metadata' } })
  const page = await openPage(shared.browser, shared.gateway, { person, path: `/logs?log=${streamed.logId}` })
  await drawerOf(page).getByText('The sandbox read: Stream it').waitFor()
  await drawerOf(page).getByRole('button', { name: 'Markdown' }).click()
  await drawerOf(page).locator('.markdown').first().waitFor()
  await page.goto(`/console/logs?log=${bare.logId}`)
  await drawerOf(page).getByText('The request was not kept').waitFor()
  await page.goto('/console/logs?log=12345678')
  await drawerOf(page).getByRole('alert').waitFor()
  await inspect(page, 'log-missing')
  page.clean({ allow: /404/ })
})

test('model output is never rendered as HTML', async () => {
  const nasty = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>[click](javascript:alert(1)) ![pixel](https://example.com/pixel.png)'
  const sent = await chat(shared.gateway, person.key, { text: nasty })
  const page = await openPage(shared.browser, shared.gateway, { person, path: `/logs?log=${sent.logId}` })
  await drawerOf(page).getByText('onerror').first().waitFor()
  await drawerOf(page).getByRole('button', { name: 'Markdown' }).click()
  await drawerOf(page).locator('.markdown').first().waitFor()
  assert.equal(await drawerOf(page).locator('img, script').count(), 0)
  assert.equal(await drawerOf(page).locator('a[href^="javascript"]').count(), 0)
  assert.notEqual(await page.title(), 'owned')
  page.clean()
})

test('a request becomes a test case, and is judged by an eval', async () => {
  const dataset = await call(shared.gateway, person.token, 'POST', '/api/v1/datasets', { name: 'From logs' })
  await call(shared.gateway, person.token, 'POST', '/api/v1/evals', { name: 'Says something', type: 'static', evaluator: 'length', config: { min: 1 }, enabled: true })
  const sent = await chat(shared.gateway, person.key, { text: 'Keep me' })
  const page = await openPage(shared.browser, shared.gateway, { person, path: `/logs?log=${sent.logId}` })
  await page.getByRole('button', { name: 'Dataset' }).click()
  await page.getByRole('button', { name: 'Add case' }).click()
  await page.getByText('Added as a test case').waitFor()
  const { cases } = await call(shared.gateway, person.token, 'GET', `/api/v1/datasets/${dataset.id}/cases`)
  assert.equal(cases.length, 1)
  await page.getByRole('button', { name: 'Evaluate' }).click()
  await page.getByRole('dialog', { name: 'Evaluate this request' }).getByRole('button', { name: 'Run' }).click()
  await waitFor('the run', async () => /\/evals\/runs\/\d+/.test(page.url()))
  page.clean()
})

test('seven tabs are live, over one stream', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/account' })
  let streams = 0
  const tabs = [page]
  for (let at = 1; at < 7; at++) tabs.push(await page.context().newPage())
  for (const tab of tabs) tab.on('request', (request) => request.url().includes('/logs/stream') && streams++)
  await Promise.all(tabs.map((tab) => tab.goto('/console/logs')))
  for (const tab of tabs) await tab.getByText('Live', { exact: true }).waitFor()
  await chat(shared.gateway, person.key, { text: 'Seen in every tab' })
  for (const tab of tabs) await tab.getByText('Seen in every tab').waitFor()
  assert.equal(streams, 1, 'one stream for the whole browser')
  await page.close()
  await chat(shared.gateway, person.key, { text: 'The next tab took over' })
  for (const tab of tabs.slice(1)) await tab.getByText('The next tab took over').waitFor()
})

test('a broken stream is resumed without missing rows', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/logs' })
  await page.getByText('Live', { exact: true }).waitFor()
  await page.context().setOffline(true)
  await page.route('**/logs/stream', (route) => route.abort())
  await chat(shared.gateway, person.key, { text: 'While the line was cut' })
  await page.unroute('**/logs/stream')
  await page.context().setOffline(false)
  await page.getByText('While the line was cut').waitFor({ timeout: 30_000 })
})

test('a viewer sees what needs another role, and why', async () => {
  const viewer = await joinAs(shared.gateway, person, 'viewer')
  const sent = await chat(shared.gateway, person.key, { text: 'For a viewer' })
  const page = await openPage(shared.browser, shared.gateway, { person: viewer, path: `/logs?log=${sent.logId}` })
  const button = page.getByRole('button', { name: 'Dataset' })
  await button.waitFor()
  await waitFor('the role', async () => (await button.getAttribute('aria-disabled')) === 'true')
  assert.match(await button.getAttribute('title'), /Needs the role member; you are viewer/)
  await page.goto('/console/start')
  await page.getByRole('button', { name: 'Create another key' }).waitFor()
  assert.equal(await page.getByRole('button', { name: 'Create another key' }).getAttribute('aria-disabled'), 'true')
  page.clean()
})

test('without the plan the tab of verdicts says what it would show, and an owner can switch', async () => {
  const owner = await signUp(shared.gateway)
  const sent = await chat(shared.gateway, owner.key, { text: 'On the free plan' })
  const page = await openPage(shared.browser, shared.gateway, { person: owner, path: `/logs?log=${sent.logId}&tab=evals` })
  await page.getByRole('heading', { name: 'External evaluators are turned off' }).waitFor()
  await inspect(page, 'log-plan')
  await page.getByRole('button', { name: 'Turn on external evaluators' }).click()
  await page.getByRole('heading', { name: 'No verdict yet' }).waitFor()
  page.clean()
})

test('an old tab reloads after an upgrade', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/account' })
  await page.getByRole('heading', { name: 'Account' }).waitFor()
  let gone = true
  await page.route('**/assets/Usage-*.js', (route) => (gone ? route.fulfill({ status: 404 }) : route.continue()))
  const reloaded = page.waitForEvent('load')
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Usage' }).click()
  await reloaded
  gone = false
  await page.goto('/console/usage')
  await page.getByRole('heading', { name: 'Usage' }).waitFor()
})
