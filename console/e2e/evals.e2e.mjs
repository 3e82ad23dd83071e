import assert from 'node:assert/strict'
import test from 'node:test'
import { call, chat, inspect, joinAs, openPage, setUp, signUp, waitFor } from './harness.mjs'

const shared = setUp()
const define = (person, config = { value: 'good' }) => call(shared.gateway, person.token, 'POST', '/api/v1/evals', { name: 'Greets', type: 'static', evaluator: 'contains', config })

/** Runs an eval over a dataset and waits for it to finish. */
async function runOn(person, datasetId, evalId, target) {
  const run = await call(shared.gateway, person.token, 'POST', `/api/v1/datasets/${datasetId}/eval`, { eval_id: evalId, ...(target && { target }) })
  return waitFor('the run', async () => {
    const now = await call(shared.gateway, person.token, 'GET', `/api/v1/evals/runs/${run.id}`)
    return now.status === 'completed' && now
  })
}

test('an eval is tried on logged requests before it is saved, and then run', async () => {
  const person = await signUp(shared.gateway)
  for (const text of ['good morning', 'good night', 'bad weather']) await chat(shared.gateway, person.key, { text })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/evals' })
  await page.getByRole('heading', { name: 'No evals yet' }).waitFor()
  await inspect(page, 'evals-empty')
  await page.getByRole('button', { name: 'New eval' }).first().click()
  const dialog = page.getByRole('dialog', { name: 'New eval' })
  await dialog.getByLabel('Name').fill('Greets')
  await dialog.getByLabel('Judged by').selectOption('regex')
  await dialog.getByRole('button', { name: 'Create eval' }).click()
  assert.equal(await dialog.getByLabel('Pattern').evaluate((field) => field.validity.valueMissing), true)
  await dialog.getByLabel('Pattern').fill('[')
  await dialog.getByRole('button', { name: 'Create eval' }).click()
  await dialog.getByRole('alert').waitFor()
  await dialog.getByLabel('Pattern').fill('good (morning|night)')
  await dialog.getByRole('button', { name: 'Try on the last 20 requests' }).click()
  await dialog.getByText('66.7% of 3 requests passed').waitFor()
  await inspect(page, 'eval-new')
  assert.equal((await call(shared.gateway, person.token, 'GET', '/api/v1/evals')).evals.length, 0, 'a trial run is deleted afterwards')
  await dialog.getByRole('button', { name: 'Create eval' }).click()
  await page.getByRole('heading', { name: 'Greets' }).waitFor()
  await page.getByRole('button', { name: 'Run on requests' }).click()
  await page.getByRole('button', { name: 'Start run' }).click()
  await page.waitForURL('**/evals/runs/*')
  await page.getByText('completed', { exact: true }).waitFor()
  const rows = page.getByRole('region', { name: 'Results' }).getByRole('row')
  await waitFor('three verdicts', async () => (await rows.count()) === 4)
  assert.match(await rows.nth(1).innerText(), /failed/, 'failures come first')
  await inspect(page, 'run')
  await rows.nth(1).getByRole('button', { name: 'Open' }).click()
  await page.getByRole('dialog', { name: /^Request/ }).getByText('bad weather').first().waitFor()
  await page.keyboard.press('Escape')
  await page.goto('/console/evals?view=runs')
  await page.getByRole('region', { name: 'Runs' }).getByText('Greets').waitFor()
  await inspect(page, 'runs')
  await page.goto('/console/evals')
  await page.getByRole('region', { name: 'Evals', exact: true }).getByText('regex').waitFor()
  await inspect(page, 'evals')
  page.clean({ allow: /4(00|22)/ })
})

test('two runs over a dataset are compared: what improved, what regressed', async () => {
  const person = await signUp(shared.gateway)
  const { id: evalId } = await define(person)
  const { id } = await call(shared.gateway, person.token, 'POST', '/api/v1/datasets', { name: 'Greetings' })
  const { cases } = await call(shared.gateway, person.token, 'POST', `/api/v1/datasets/${id}/cases`, {
    cases: [
      { input: 'first', metadata: { output: 'good' } },
      { input: 'second', metadata: { output: 'bad' } },
      { input: 'third', metadata: { output: 'good too' } },
    ],
  })
  const before = await runOn(person, id, evalId)
  await call(shared.gateway, person.token, 'PUT', `/api/v1/datasets/${id}/cases/${cases[0].id}`, { metadata: { output: 'worse' } })
  await call(shared.gateway, person.token, 'PUT', `/api/v1/datasets/${id}/cases/${cases[1].id}`, { metadata: { output: 'good now' } })

  const page = await openPage(shared.browser, shared.gateway, { person, path: `/datasets/${id}` })
  await page.getByRole('button', { name: 'Run eval' }).click()
  const dialog = page.getByRole('dialog', { name: 'Run eval on a dataset' })
  assert.ok(await dialog.getByLabel('New answers of a model').isChecked())
  await dialog.getByLabel('Model', { exact: true }).waitFor()
  await inspect(page, 'eval-run-on')
  await dialog.getByLabel('Outputs stored in the dataset').check()
  await dialog.getByRole('button', { name: 'Start run' }).click()
  await page.waitForURL('**/evals/runs/*')
  await page.getByText('completed', { exact: true }).waitFor()
  await page.getByRole('region', { name: 'Results' }).getByText('second').waitFor()
  await page.getByLabel('Another run').selectOption(String(before.id))
  await page.getByText('1 improved').waitFor()
  await page.getByText('1 regressed').waitFor()
  await page.getByText('1 the same').waitFor()
  await page.getByRole('list', { name: 'Regressed' }).getByText('first').waitFor()
  await page.getByRole('list', { name: 'Improved' }).getByText('second').waitFor()
  assert.match(page.url(), new RegExp(`with=${before.id}`))
  await inspect(page, 'run-compare')
  page.clean()
})

test('a run shows its progress and can be cancelled', async () => {
  const person = await signUp(shared.gateway)
  const { id: evalId } = await define(person)
  const { id } = await call(shared.gateway, person.token, 'POST', '/api/v1/datasets', { name: 'Many' })
  for (let at = 0; at < 3; at++) await call(shared.gateway, person.token, 'POST', `/api/v1/datasets/${id}/cases`, { cases: Array.from({ length: 1000 }, (_, number) => ({ input: `${at} ${number}` })) })
  const page = await openPage(shared.browser, shared.gateway, { person, path: `/evals/${evalId}` })
  await page.getByRole('heading', { name: 'Greets' }).waitFor()
  const run = await call(shared.gateway, person.token, 'POST', `/api/v1/datasets/${id}/eval`, { eval_id: evalId, target: { provider: 'sandbox', model: 'sandbox-small' } })
  await page.goto(`/console/evals/runs/${run.id}`)
  await page.getByRole('progressbar', { name: 'Judged' }).waitFor()
  await page.getByText(/^[1-9]\d*(,\d+)? of 3,000 judged/).waitFor()
  await page.getByRole('button', { name: 'Cancel run' }).click()
  await page.getByText('cancelled', { exact: true }).waitFor()
  await inspect(page, 'run-cancelled')
  page.clean()
})

test('a viewer sees verdicts but cannot start runs; a missing eval shows an error', async () => {
  const owner = await signUp(shared.gateway)
  const { id } = await define(owner)
  const viewer = await joinAs(shared.gateway, owner, 'viewer')
  const page = await openPage(shared.browser, shared.gateway, { person: viewer, path: `/evals/${id}` })
  await page.getByText('Needs the role member; you are viewer', { exact: true }).locator('visible=true').first().waitFor()
  for (const name of ['Run on requests', 'Run on a dataset']) assert.equal(await page.getByRole('button', { name }).getAttribute('aria-disabled'), 'true')
  assert.equal(await page.getByRole('switch', { name: 'Judge new requests' }).isDisabled(), true)
  await inspect(page, 'eval-viewer')
  await page.goto('/console/evals/runs/1')
  await page.getByRole('alert').getByText('not_found').waitFor()
  page.clean({ allow: /404/ })
})
