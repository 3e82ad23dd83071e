import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { call, chat, inspect, openPage, setUp, signUp, waitFor } from './harness.mjs'

let person
const shared = setUp('provider', async ({ gateway }) => {
  person = await signUp(gateway)
  const headers = { 'X-Gateway-Provider': 'openai' }
  await call(gateway, person.token, 'POST', '/api/v1/prompts', { namespace: 'support', slug: 'greeting', content: 'Greet {{name}}' })
  const second = await call(gateway, person.token, 'POST', '/api/v1/keys', { name: 'Second key' })
  for (let at = 0; at < 6; at++) await chat(gateway, at % 2 ? person.key : second.raw_key, { model: ['gpt-4o', 'gpt-4o-mini', 'o3'][at % 3], headers: { ...headers, 'X-Gateway-User': 'ada' } })
  await chat(gateway, person.key, { model: 'gpt-4o', headers: { ...headers, 'X-Gateway-Prompt': 'support/greeting', 'X-Gateway-Prompt-Variables': '{"name":"Ada"}' } })
  await chat(gateway, person.key, { model: 'no-price', text: 'no price' })
  await call(gateway, person.token, 'POST', `/api/v1/orgs/${person.org.id}/budgets`, { scope: 'org', period: 'monthly', soft_limit_usd: 0.01, hard_limit_usd: 0.05 })
})

test('cost by model, provider, key, team, user and prompt', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/usage' })
  await page.getByRole('slider', { name: 'Cost' }).waitFor()
  await page.getByText('1 request to models without a price: no-price').waitFor()
  await page.getByText('Organization, monthly').waitFor()
  await inspect(page, 'usage')
  const expected = { provider: 'openai', key: 'Second key', user: 'ada', prompt: 'support/greeting' }
  for (const [by, row] of Object.entries(expected)) {
    await page.getByLabel('Group by').selectOption(by)
    await waitFor(`by ${by}`, async () => page.url().includes(`by=${by}`))
    await page.getByRole('region', { name: `Usage by ${by}` }).getByText(row, { exact: false }).first().waitFor()
  }
  await inspect(page, 'usage-by-prompt')
  await page.getByLabel('Group by').selectOption('key')
  await page.getByRole('region', { name: 'Usage by key' }).getByRole('row', { name: /Second key/ }).click()
  await waitFor('the requests of the key', async () => /\/logs\?.*query=key/.test(page.url()))
  page.clean()
})

test('usage of the requests that match a query, with p99, and by error', async () => {
  await chat(shared.gateway, person.key, { text: 'fail', model: 'gpt-4o', headers: { 'X-Gateway-Provider': 'openai' } })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/usage' })
  const box = page.getByRole('combobox', { name: 'Query' })
  await box.fill('user:ada model:gpt-4o*')
  await page.keyboard.press('Escape')
  await box.press('Enter')
  const table = page.getByRole('region', { name: 'Usage by model' })
  await table.getByRole('columnheader', { name: 'p99' }).waitFor()
  assert.equal(await table.getByRole('row').count(), 3, 'a header and two models')
  assert.match(page.url(), /query=user/)
  await inspect(page, 'usage-query')
  await table.getByRole('row', { name: /gpt-4o-mini/ }).click()
  await waitFor('the rows of the model', async () => (await page.getByRole('combobox', { name: 'Query' }).inputValue()) === 'user:ada model:gpt-4o* model:gpt-4o-mini')
  await page.goBack()
  await page.getByRole('button', { name: 'Clear the query' }).click()
  await page.getByLabel('Group by').selectOption('error')
  await page.getByRole('region', { name: 'Usage by error' }).getByRole('row', { name: /provider_error/ }).waitFor()
  await page.getByLabel('Group by').selectOption('tool')
  await page.getByRole('heading', { name: 'No tools were called in this range' }).waitFor()
  page.clean()
})

test('the table is downloaded as CSV', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/usage?by=model' })
  await page.getByRole('slider', { name: 'Cost' }).waitFor()
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()])
  assert.match(file.suggestedFilename(), /^usage-by-model-\d{4}-\d\d-\d\d-to-\d{4}-\d\d-\d\d\.csv$/)
  const lines = readFileSync(await file.path(), 'utf8').trim().split('\r\n')
  assert.equal(lines.length, 5, 'a header and four models')
  assert.match(lines[0], /^model,name,requests,/)
  assert.ok(lines.some((line) => line.startsWith('gpt-4o-mini,')))
  page.clean()
})

test('prices are searched', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/usage?view=prices' })
  await page.getByText(/prices, USD per million tokens/).waitFor()
  await inspect(page, 'usage-prices')
  await page.getByLabel('Find a model').fill('openai gpt-4o-mini')
  await waitFor('the search', async () => page.url().includes('q=openai'))
  await page.getByRole('region', { name: 'Prices' }).getByText('gpt-4o-mini', { exact: true }).first().waitFor()
  await page.getByLabel('Find a model').fill('no such model at all')
  await page.getByRole('heading', { name: 'No models match' }).waitFor()
  await page.getByRole('button', { name: 'Clear' }).click()
  page.clean()
})

test('without usage in the range it says so', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/usage?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z' })
  await page.getByRole('heading', { name: 'Nothing was used in this range' }).waitFor()
  page.clean()
})

test('a budget for each user, and one for a user set from its usage', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/org/budgets' })
  await page.getByRole('button', { name: 'Set budget' }).click()
  const dialog = page.getByRole('dialog', { name: 'Set budget' })
  await dialog.getByLabel('For').selectOption('user')
  await dialog.getByText('Each user may spend this amount').waitFor()
  await dialog.getByLabel('Hard limit, USD').fill('2')
  await inspect(page, 'budget-form-user')
  await dialog.getByRole('button', { name: 'Set budget' }).click()
  const card = page.getByRole('listitem', { name: 'monthly budget of Each user' })
  await card.getByText('each, monthly').waitFor()
  await inspect(page, 'budgets-users')
  await card.getByRole('link', { name: 'usage by user' }).click()
  const table = page.getByRole('region', { name: 'Usage by user' })
  await table.getByText('$2.00 a month').waitFor()
  await page.getByRole('button', { name: 'Set the budget of ada' }).click()
  await page.getByText('Replaces the budget for each user, if there is one, for ada.').waitFor()
  await page.getByLabel('Hard limit, USD').fill('20')
  await page.getByRole('dialog').getByRole('button', { name: 'Set budget' }).click()
  await page.getByRole('button', { name: 'Edit the budget of ada' }).waitFor()
  await table.getByText('$20.00 a month').waitFor()
  await inspect(page, 'usage-by-user')
  const { budgets } = await call(shared.gateway, person.token, 'GET', `/api/v1/orgs/${person.org.id}/budgets?user=ada`)
  assert.deepEqual(budgets.map((budget) => [budget.scope_id, budget.hard_limit_usd]), [['ada', 20]])
  assert.ok(budgets[0].spent_usd > 0)
  page.clean()
})
