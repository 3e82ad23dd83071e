import assert from 'node:assert/strict'
import test from 'node:test'
import { call, inspect, joinAs, openPage, setUp, signUp } from './harness.mjs'

const shared = setUp()

const row = (page, name) => page.getByRole('row').filter({ hasText: name })

test('the audit log shows who changed what, is filtered by the URL and verified', async () => {
  const person = await signUp(shared.gateway)
  const key = await call(shared.gateway, person.token, 'POST', '/api/v1/keys', { name: 'checkout' })
  await call(shared.gateway, person.token, 'PUT', `/api/v1/keys/${key.key.id}`, { name: 'till' })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/org/audit' })
  await row(page, 'changed key').waitFor()
  await row(page, 'created organization').waitFor()
  await row(page, 'changed key').click()
  const entry = page.getByRole('dialog', { name: 'Audit entry' })
  await entry.getByText('checkout').first().waitFor()
  await entry.getByText('till').first().waitFor()
  await inspect(page, 'audit-entry')
  await page.keyboard.press('Escape')

  await page.getByRole('button', { name: 'Verify' }).click()
  await page.getByText(/intact up to #\d+, no checkpoint yet/).waitFor()
  await inspect(page, 'audit')

  await row(page, 'changed key').getByRole('link', { name: 'till' }).click()
  await page.waitForURL(/target_id=/)
  assert.ok(page.url().includes(key.key.id), page.url())
  await row(page, 'created organization').waitFor({ state: 'detached' })
  await row(page, 'created key').waitFor()
  page.clean()
})

test('keys, members and prompts have a history', async () => {
  const person = await signUp(shared.gateway)
  await call(shared.gateway, person.token, 'POST', '/api/v1/keys', { name: 'checkout' })
  await call(shared.gateway, person.token, 'POST', '/api/v1/prompts', { namespace: 'support', slug: 'greeting', content: 'Hello' })
  const member = await joinAs(shared.gateway, person, 'viewer')
  await call(shared.gateway, person.token, 'PUT', `/api/v1/orgs/${person.org.id}/members/${member.userId}`, { role: 'member' })

  let page = await openPage(shared.browser, shared.gateway, { person, path: '/keys' })
  await page.getByRole('button', { name: 'Actions for checkout' }).click()
  await page.getByRole('menuitem', { name: 'History' }).click()
  await row(page.getByRole('dialog', { name: 'History of checkout' }), 'created key').waitFor()
  await inspect(page, 'audit-key-history')
  page.clean()

  page = await openPage(shared.browser, shared.gateway, { person, path: '/org/members' })
  await row(page, member.email).getByRole('button', { name: /^History of/ }).click()
  await row(page.getByRole('dialog', { name: /^History of/ }), 'changed the role of member').waitFor()
  await inspect(page, 'audit-member-history')
  page.clean()

  page = await openPage(shared.browser, shared.gateway, { person, path: '/prompts/support/greeting' })
  await page.getByRole('tab', { name: 'History' }).click()
  await row(page, 'created prompt').waitFor()
  await inspect(page, 'audit-prompt-history')
  page.clean()
})

test('a member whom the organization names as an auditor sees the histories, another one does not', async () => {
  const owner = await signUp(shared.gateway)
  await call(shared.gateway, owner.token, 'POST', '/api/v1/keys', { name: 'checkout' })
  await call(shared.gateway, owner.token, 'POST', '/api/v1/prompts', { namespace: 'support', slug: 'greeting', content: 'Hello' })
  const [auditor, viewer] = [await joinAs(shared.gateway, owner, 'viewer'), await joinAs(shared.gateway, owner, 'viewer')]
  await call(shared.gateway, owner.token, 'PUT', `/api/v1/orgs/${owner.org.id}`, { settings: { auditors: [auditor.userId] } })

  let page = await openPage(shared.browser, shared.gateway, { person: auditor, path: '/prompts/support/greeting' })
  await page.getByRole('tab', { name: 'History' }).click()
  await row(page, 'created prompt').waitFor()
  await inspect(page, 'audit-auditor-history')
  page.clean()
  page = await openPage(shared.browser, shared.gateway, { person: auditor, path: '/keys' })
  await page.getByRole('button', { name: 'Actions for checkout' }).click()
  await page.getByRole('menuitem', { name: 'History' }).click()
  await row(page.getByRole('dialog', { name: 'History of checkout' }), 'created key').waitFor()
  page.clean()
  page = await openPage(shared.browser, shared.gateway, { person: auditor, path: '/org/members' })
  await row(page, viewer.email).getByRole('button', { name: /^History of/ }).click()
  await page.getByRole('dialog', { name: /^History of/ }).waitFor()
  page.clean()

  page = await openPage(shared.browser, shared.gateway, { person: viewer, path: '/prompts/support/greeting' })
  await page.getByRole('tab').first().waitFor()
  assert.equal(await page.getByRole('tab', { name: 'History' }).count(), 0)
  page.clean()
})
