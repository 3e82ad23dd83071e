import assert from 'node:assert/strict'
import test from 'node:test'
import { call, inspect, joinAs, openPage, setUp, signUp, waitFor } from './harness.mjs'
import { setUpSink } from './sink.mjs'

const shared = setUp()
const sink = setUpSink()

test('a credential is stored, tested, replaced and removed, and never shown', async () => {
  const person = await signUp(shared.gateway)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/providers' })
  const card = page.getByRole('listitem', { name: 'openai', exact: true })
  await page.getByRole('listitem', { name: 'sandbox', exact: true }).waitFor()
  assert.equal(await card.count(), 0)
  await inspect(page, 'providers-ready')
  await page.getByRole('button', { name: /^Show all providers/ }).click()
  await card.getByText('no credential').waitFor()
  await inspect(page, 'providers')
  await card.getByRole('button', { name: 'Add credential' }).click()
  const dialog = page.getByRole('dialog', { name: 'Connect openai' })
  await dialog.getByLabel('API key').fill('sk-wrong-secret')
  await dialog.getByLabel('Base URL').fill(sink.url)
  await inspect(page, 'provider-form')
  await dialog.getByRole('button', { name: 'Save', exact: true }).click()
  await card.getByText('credential set').waitFor()

  sink.status = 401
  sink.body = '{"error":{"message":"Incorrect API key provided"}}'
  await card.getByRole('button', { name: 'Test openai' }).click()
  await card.getByText(/failed/).waitFor()
  await card.getByText('401', { exact: true }).waitFor()
  assert.equal(sink.requests.at(-1).headers.authorization, 'Bearer sk-wrong-secret')
  await inspect(page, 'provider-failed')

  sink.status = 200
  sink.body = '{"object":"list","data":[]}'
  await card.getByRole('button', { name: 'Actions for openai' }).click()
  await page.getByRole('menuitem', { name: 'Edit…' }).click()
  const edit = page.getByRole('dialog', { name: 'Edit openai' })
  assert.equal(await edit.getByLabel('API key').inputValue(), '')
  await edit.getByLabel('API key').fill('sk-right-secret')
  await edit.getByRole('button', { name: 'Save and test' }).click()
  await edit.waitFor({ state: 'detached' })
  await card.getByText(/works/).waitFor()
  assert.equal(sink.requests.at(-1).headers.authorization, 'Bearer sk-right-secret')
  assert.ok(!(await page.content()).includes('sk-right-secret'))

  await card.getByRole('button', { name: 'Actions for openai' }).click()
  await page.getByRole('menuitem', { name: 'Remove…' }).click()
  await page.getByRole('dialog', { name: 'Remove openai?' }).getByRole('button', { name: 'Remove credential' }).click()
  await card.getByText('no credential').waitFor()
  page.clean()
})

test('a custom provider is added with several credentials, and an error is shown at its field', async () => {
  const person = await signUp(shared.gateway)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/providers' })
  await page.getByRole('button', { name: 'Add custom provider' }).click()
  const dialog = page.getByRole('dialog', { name: 'Add custom provider' })
  await dialog.getByLabel('Name').fill('Not a name!')
  await dialog.getByLabel('Base URL').fill(sink.url)
  await dialog.getByText('More: several credentials').click()
  await dialog.getByRole('button', { name: 'Add', exact: true }).click()
  await dialog.getByLabel('Label of credential 1').fill('main')
  await dialog.getByLabel('Key of credential 1').fill('sk-main')
  await dialog.getByLabel('Models', { exact: true }).fill('tiny\nhuge')
  await dialog.getByLabel('Zero data retention').click()
  await inspect(page, 'provider-custom')
  await dialog.getByRole('button', { name: 'Add provider' }).click()
  await dialog.getByRole('alert').waitFor()
  await dialog.getByLabel('Name').fill('our-models')
  await dialog.getByRole('button', { name: 'Add provider' }).click()
  const card = page.getByRole('listitem', { name: 'our-models' })
  await card.getByText('1 credential').waitFor()
  await card.getByText(/2 models/).waitFor()
  const { providers } = await call(shared.gateway, person.token, 'GET', `/api/v1/orgs/${person.org.id}/providers`)
  assert.deepEqual(providers.map(({ name, credentials, no_retention }) => [name, credentials.map((one) => one.label), no_retention]), [['our-models', ['main'], true]])
  await page.getByLabel('Search providers').fill('huge')
  await waitFor('the filter', async () => (await page.getByRole('listitem').filter({ has: page.getByRole('heading') }).count()) === 1)
  page.clean({ allow: /400/ })
})

test('a new origin drops the credential of a provider, which a notice says', async () => {
  const person = await signUp(shared.gateway)
  const path = `/api/v1/orgs/${person.org.id}/providers`
  await call(shared.gateway, person.token, 'POST', path, { name: 'openai', api_key: 'sk-secret', base_url: sink.url })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/providers' })
  await page.getByRole('button', { name: 'Actions for openai' }).click()
  await page.getByRole('menuitem', { name: 'Edit…' }).click()
  const edit = page.getByRole('dialog', { name: 'Edit openai' })
  await edit.getByLabel('Base URL').fill('http://127.0.0.1:9')
  await edit.getByRole('button', { name: 'Save', exact: true }).click()
  await page.getByText('openai has a new origin, so its stored API keys and headers were dropped. Enter them again.').waitFor()
  await inspect(page, 'provider-secrets-dropped')
  page.clean()
})

test('a viewer sees which providers work and can change none', async () => {
  const owner = await signUp(shared.gateway)
  const person = await joinAs(shared.gateway, owner, 'viewer')
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/providers' })
  const sandbox = page.getByRole('listitem', { name: 'sandbox', exact: true })
  await sandbox.getByText('needs no account').waitFor()
  const button = sandbox.getByRole('button', { name: 'Test sandbox' })
  await waitFor('the role', async () => (await button.getAttribute('aria-disabled')) === 'true')
  assert.match(await button.getAttribute('title'), /Needs the role admin/)
  page.clean()
})
