import assert from 'node:assert/strict'
import test from 'node:test'
import { call, chat, inspect, openPage, setUp, signUp, waitFor } from './harness.mjs'

let person
const messages = [
  { role: 'system', content: 'You are a kind travel agent.' },
  { role: 'user', content: 'I want to see the sea.' },
]
const shared = setUp('provider', async ({ gateway }) => {
  person = await signUp(gateway)
  const headers = { 'X-Gateway-Provider': 'openai', 'X-Gateway-Session': 'holiday', 'X-Gateway-User': 'ada' }
  await chat(gateway, person.key, { model: 'gpt-4o', headers, body: { messages } })
  const next = [...messages, { role: 'assistant', content: 'You said 22 characters.' }, { role: 'user', content: 'With mountains, please.' }]
  await chat(gateway, person.key, { model: 'gpt-4o-mini', headers, body: { messages: next } })
  // No server listens on the default vLLM port.
  await chat(gateway, person.key, { model: 'gpt-4o', text: 'And trains?', headers: { ...headers, 'X-Gateway-Provider': 'vllm', 'X-Gateway-Fallback': 'openai/gpt-4o' } })
  await chat(gateway, person.key, { model: 'gpt-4o', text: 'fail', headers })
  await chat(gateway, person.key, { text: 'Somebody else', headers: { 'X-Gateway-User': 'grace' } })
})

test('sessions are listed and found by a query', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/sessions' })
  await page.getByRole('region', { name: 'Sessions' }).getByText('holiday').waitFor()
  await inspect(page, 'sessions')
  const box = page.getByRole('combobox', { name: 'Query' })
  await box.fill('user:nobody')
  await box.press('Enter')
  await page.getByRole('heading', { name: 'No sessions match' }).waitFor()
  assert.match(page.url(), /query=user/)
  await box.fill('latncy:>2s')
  await box.press('Enter')
  await page.getByRole('alert').getByText('did you mean latency', { exact: false }).waitFor()
  await page.getByRole('button', { name: 'Clear the query' }).click()
  await page.getByRole('row', { name: /holiday/ }).focus()
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Session holiday' }).waitFor()
  page.clean({ allow: /400/ })
})

test('sessions of the playground are left out until they are asked for', async () => {
  await call(shared.gateway, person.token, 'POST', '/api/v1/playground/run', { provider: 'sandbox', model: 'sandbox-large', messages: [{ role: 'user', content: 'Tried by hand' }] })
  await waitFor('the row', async () => (await call(shared.gateway, person.token, 'GET', '/api/v1/sessions?query=model:sandbox-large')).sessions.length === 1)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/sessions' })
  const list = page.getByRole('region', { name: 'Sessions' })
  await list.getByText('holiday').waitFor()
  assert.equal(await list.getByText('sandbox-large').count(), 0)
  await page.getByRole('switch', { name: 'Playground and evals' }).click()
  await list.getByText('sandbox-large').waitFor()
  assert.match(page.url(), /own=show/)
  page.clean()
})

test('a session is shown as one conversation without repeated history', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/sessions/holiday' })
  await page.getByText('With mountains, please.').waitFor()
  await waitFor('all turns', async () => (await page.getByText('And trains?').count()) === 1)
  assert.equal(await page.getByText('I want to see the sea.').count(), 1, 'repeated history is shown once')
  await page.getByRole('region', { name: 'User ada' }).getByText('All requests').waitFor()
  await inspect(page, 'session-conversation')
  page.clean()
})

test('the timeline shows attempts and events, and a click opens the request', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/sessions/holiday?view=timeline' })
  await page.getByRole('img', { name: /^Timeline of \d+ calls/ }).waitFor()
  await page.getByRole('region', { name: 'Events' }).getByText('fallback').first().waitFor()
  const legend = page.getByRole('list', { name: 'Legend' })
  for (const name of ['openai', 'vllm', 'failed']) await legend.getByText(name, { exact: true }).waitFor()
  const colors = await legend.locator('span[style]').evaluateAll((marks) => marks.map((mark) => mark.style.background))
  assert.equal(new Set(colors).size, colors.length, 'each name of the legend has a colour of its own')
  assert.equal(await page.getByRole('button', { name: /Time range/ }).count(), 0, 'a session has no time range')
  await inspect(page, 'session-timeline')
  await page.getByRole('region', { name: 'Events' }).getByRole('row').nth(1).click()
  await page.getByRole('dialog', { name: /^Request \d+/ }).waitFor()
  await inspect(page, 'session-drawer')
  page.clean()
})

test('a request that joins the session appears by itself', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/sessions/holiday' })
  await page.getByText('With mountains, please.').waitFor()
  await page.waitForTimeout(500)
  await chat(shared.gateway, person.key, { model: 'gpt-4o', text: 'One more wish', headers: { 'X-Gateway-Provider': 'openai', 'X-Gateway-Session': 'holiday', 'X-Gateway-User': 'ada' } })
  await page.getByText('One more wish').waitFor()
  page.clean()
})

test('a session that does not exist says so', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/sessions/nowhere' })
  await page.getByRole('alert').waitFor()
  page.clean({ allow: /404/ })
})
