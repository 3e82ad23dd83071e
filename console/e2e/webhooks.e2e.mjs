import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import test from 'node:test'
import { call, inspect, joinAs, openPage, setUp, signUp, waitFor } from './harness.mjs'
import { setUpSink } from './sink.mjs'

const shared = setUp()
const sink = setUpSink()

test('without the plan the page says what it does, and an owner can change the plan there', async () => {
  const owner = await signUp(shared.gateway)
  const member = await joinAs(shared.gateway, owner, 'member')
  const page = await openPage(shared.browser, shared.gateway, { person: member, path: '/webhooks' })
  await page.getByRole('heading', { name: 'Webhooks are turned off' }).waitFor()
  assert.equal(await page.getByRole('button', { name: 'Turn on webhooks' }).getAttribute('aria-disabled'), 'true')
  await inspect(page, 'webhooks-plan')
  const owners = await openPage(shared.browser, shared.gateway, { person: owner, path: '/webhooks' })
  await owners.getByRole('button', { name: 'Turn on webhooks' }).click()
  await owners.getByRole('heading', { name: 'No webhooks yet' }).waitFor()
  await inspect(owners, 'webhooks-empty')
  page.clean()
  owners.clean()
})

test('a webhook is added, its failed delivery is read and sent again', async () => {
  const person = await signUp(shared.gateway, { plan: 'enterprise' })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/webhooks' })
  await page.getByRole('button', { name: 'Add webhook' }).click()
  const dialog = page.getByRole('dialog', { name: 'Add webhook' })
  await dialog.getByLabel('Address').fill(`${sink.url}/hook`)
  await dialog.getByLabel('Only these').check()
  await dialog.getByLabel('key.create').check()
  await inspect(page, 'webhook-form')
  await dialog.getByRole('button', { name: 'Add webhook' }).click()
  const shown = page.getByRole('dialog', { name: 'The webhook is active' })
  const secret = await shown.locator('[data-secret]').innerText()
  assert.match(secret, /^whsec_/)
  await inspect(page, 'webhook-secret')
  await shown.getByRole('button', { name: 'Done' }).click()
  await page.getByRole('link', { name: `${sink.url}/hook` }).click()
  await page.getByRole('heading', { name: 'No deliveries yet' }).waitFor()

  // A 410 response makes the gateway disable the webhook.
  sink.status = 410
  sink.body = 'gone for good'
  await call(shared.gateway, person.token, 'POST', '/api/v1/keys', { name: 'tells' })
  const failed = page.getByRole('row').filter({ hasText: 'key.create' })
  await failed.getByText('failed').waitFor()
  await page.getByText(/switched it off/).waitFor()
  await inspect(page, 'webhook-off')
  await page.getByRole('button', { name: 'Reactivate' }).click()
  await page.getByText(/switched it off/).waitFor({ state: 'detached' })

  await failed.click()
  const drawer = page.getByRole('dialog', { name: 'Delivery' })
  await drawer.getByText('gone for good').waitFor()
  assert.match(page.url(), /delivery=/)
  await inspect(page, 'delivery')
  await drawer.getByRole('tab', { name: 'Payload' }).click()
  await drawer.getByText(/"type": "key.create"/).waitFor()
  await drawer.getByRole('tab', { name: 'Headers' }).click()
  await drawer.getByText('webhook-signature').waitFor()
  sink.status = 200
  sink.body = 'thanks'
  await drawer.getByRole('button', { name: 'Retry' }).click()
  await drawer.getByText('delivered', { exact: true }).waitFor()
  await drawer.getByRole('tab', { name: /Attempts 2/ }).click()
  await drawer.getByText('thanks').waitFor()

  const { headers, body } = sink.requests.at(-1)
  const signed = createHmac('sha256', Buffer.from(secret.slice(6), 'base64')).update(`${headers['webhook-id']}.${headers['webhook-timestamp']}.`).update(body)
  assert.ok(headers['webhook-signature'].split(' ').includes(`v1,${signed.digest('base64')}`), 'the secret that was shown is the one that signs')
  await page.keyboard.press('Escape')
  await drawer.waitFor({ state: 'detached' })
  page.clean()
})

test('all failed deliveries that fit the filter are sent again', async () => {
  const person = await signUp(shared.gateway, { plan: 'enterprise' })
  sink.status = 410
  const webhook = await call(shared.gateway, person.token, 'POST', '/api/v1/webhooks', { url: `${sink.url}/many` })
  await call(shared.gateway, person.token, 'POST', '/api/v1/keys', { name: 'one' })
  const deliveries = async () => (await call(shared.gateway, person.token, 'GET', `/api/v1/webhooks/${webhook.id}/deliveries`)).deliveries
  await waitFor('the failure', async () => (await deliveries()).some((one) => one.status === 'failed'))
  sink.status = 200
  await call(shared.gateway, person.token, 'PUT', `/api/v1/webhooks/${webhook.id}`, { active: true })
  const page = await openPage(shared.browser, shared.gateway, { person, path: `/webhooks/${webhook.id}?status=failed` })
  await page.getByRole('button', { name: 'Retry all failed' }).click()
  await page.getByText('1 delivery sent again').waitFor()
  await waitFor('the delivery', async () => (await deliveries()).every((one) => one.status === 'delivered'))
  await page.getByRole('heading', { name: 'No deliveries match' }).waitFor()
  await page.getByRole('button', { name: 'Send test event' }).click()
  await page.getByText('Test event sent').waitFor()
  await page.getByRole('button', { name: 'Clear' }).click()
  await page.getByRole('row').filter({ hasText: 'webhook.test' }).getByText('delivered').waitFor()
  await inspect(page, 'deliveries')
  page.clean()
})

test('a secret is replaced and a webhook deleted; a viewer can do neither', async () => {
  const owner = await signUp(shared.gateway, { plan: 'enterprise' })
  const webhook = await call(shared.gateway, owner.token, 'POST', '/api/v1/webhooks', { url: `${sink.url}/replace` })
  const viewer = await joinAs(shared.gateway, owner, 'viewer')
  const looking = await openPage(shared.browser, shared.gateway, { person: viewer, path: `/webhooks/${webhook.id}` })
  const button = looking.getByRole('button', { name: 'Send test event' })
  await waitFor('the role', async () => (await button.getAttribute('aria-disabled')) === 'true')
  await looking.getByRole('button', { name: 'More actions' }).click()
  assert.equal(await looking.getByRole('menuitem', { name: /Delete/ }).getAttribute('aria-disabled'), 'true')
  looking.clean()
  await looking.context().close()

  const page = await openPage(shared.browser, shared.gateway, { person: owner, path: `/webhooks/${webhook.id}` })
  await page.getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Replace secret…' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Replace secret' }).click()
  const fresh = await page.getByRole('dialog', { name: 'The secret is replaced' }).locator('[data-secret]').innerText()
  assert.notEqual(fresh, webhook.secret)
  await page.getByRole('button', { name: 'Done' }).click()
  await page.getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Delete…' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete webhook' }).click()
  await page.getByRole('heading', { name: 'No webhooks yet' }).waitFor()
  page.clean({ allow: /404/ })
})
