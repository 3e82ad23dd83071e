/**
 * Every page of the console, with data on it. The tests that hold for each page and the script that takes pictures read
 * this list; a route that is missing in it fails `pages.e2e.mjs`.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { resolve } from 'node:path'
import { call, chat, waitFor } from './harness.mjs'

const sources = resolve(import.meta.dirname, '../src/pages')
const SKILL = '---\nname: release-notes\ndescription: Turns the commits since the last tag into notes for customers. Use before a release.\n---\n\n# Tell customers what is new\n\n1. List the commits: `git log $(git describe --tags --abbrev=0)..HEAD --oneline`.\n2. Drop those that nobody outside notices, and group the others by product area.\n3. Write two sentences for each group, without names of people or branches.\n'
const QUESTIONS = ['Where is my order 4711?', 'How do I change the invoice address?', 'Can I get a refund for last month?', 'The export fails with an error', 'Please summarize this ticket in one sentence']

/** The paths of all routes, as the sources define them. */
export function definedRoutes() {
  const files = readdirSync(sources).filter((name) => name.endsWith('.tsx'))
  return files.flatMap((name) => [...readFileSync(resolve(sources, name), 'utf8').matchAll(/path: '(\/[^']*)'/g)].map((match) => match[1])).sort()
}

/** Fills an organization of the enterprise plan with something for every page; returns the ids that paths need. */
export async function fillPages(gateway, person) {
  const post = (path, body) => call(gateway, person.token, 'POST', `/api/v1${path}`, body)
  const org = `/orgs/${person.org.id}`
  const openai = { 'X-Gateway-Provider': 'openai' }
  const prompt = { namespace: 'support', slug: 'answer-briefly' }
  await post('/prompts', { ...prompt, content: 'Answer {{name}} in one sentence.' })
  await call(gateway, person.token, 'PUT', '/api/v1/prompts/support/answer-briefly', { content: 'Answer {{name}} in one sentence, and name the order.' })
  const app = await post(`${org}/apps`, { name: 'Support bot' })
  await post(`${org}/teams`, { name: 'Support', member_ids: [person.userId] })
  const key = await post('/keys', { name: 'Support bot, production', app_id: app.id })
  await post('/keys', { name: 'Laptop of Ada', scopes: ['proxy'], expires_at: new Date(Date.now() + 30 * 86_400_000).toISOString() })
  for (let at = 0; at < 24; at++) {
    const headers = { ...openai, 'X-Gateway-User': ['maria', 'ada', 'grace'][at % 3], 'X-Gateway-Session': `conversation-${at % 4}`, 'X-Gateway-Metadata': '{"env":"prod"}', ...(at % 5 === 0 && { 'X-Gateway-Cache': 'true' }) }
    await chat(gateway, at % 2 ? key.raw_key : person.key, { text: at % 8 === 7 ? 'fail' : QUESTIONS[at % QUESTIONS.length], model: ['gpt-4o', 'gpt-4o-mini', 'o3', 'gpt-4.1'][at % 4], headers })
  }
  await chat(gateway, person.key, { text: 'In the sandbox' })
  await chat(gateway, person.key, { text: 'With a prompt', model: 'gpt-4o', headers: { ...openai, 'X-Gateway-Prompt': 'support/answer-briefly', 'X-Gateway-Prompt-Variables': '{"name":"Ada"}' } })
  await post('/playground/run', { provider: 'sandbox', model: 'sandbox-small', messages: [{ role: 'user', content: 'Tried by hand' }] })
  const dataset = await post('/datasets', { name: 'Support questions', description: 'Questions of customers' })
  await post(`/datasets/${dataset.id}/cases`, { cases: QUESTIONS.map((input) => ({ input, expected: 'order' })) })
  const definition = await post('/evals', { name: 'Names the order', type: 'static', evaluator: 'contains', config: { value: 'order' } })
  const runOf = (model) => post(`/datasets/${dataset.id}/eval`, { eval_id: definition.id, target: { provider: 'sandbox', model, prompt: null } })
  const [run] = [await runOf('sandbox-small'), await runOf('sandbox-large')]
  const skill = await post('/skills', { raw_source: SKILL })
  const webhook = await post('/webhooks', { url: 'http://127.0.0.1:9/hooks/gateway', events: [] })
  const model = await post(`${org}/models`, { name: 'everyday', targets: [{ provider: 'openai', model: 'gpt-4o' }, { provider: 'sandbox', model: 'sandbox-small' }] })
  await post(`${org}/mcp-servers`, { name: 'math', url: 'http://127.0.0.1:9/mcp' })
  await post(`${org}/limits`, { name: 'whole', requests: 1000 })
  await post(`${org}/alerts`, { name: 'Spend of a day', measure: 'cost_usd', above: 5 })
  await post('/exports', { name: 'Traces', kind: 'otlp', endpoint: 'http://127.0.0.1:9/v1/traces' })
  await post(`${org}/members`, { email: 'late@example.com', role: 'viewer' })
  await post(`${org}/budgets`, { scope: 'org', period: 'monthly', soft_limit_usd: 5, hard_limit_usd: 10 })
  await post(`${org}/budgets`, { scope: 'user', scope_id: 'maria', period: 'monthly', hard_limit_usd: 1 })
  await waitFor('the rows', async () => (await call(gateway, person.token, 'GET', '/api/v1/logs')).logs.length >= 26)
  await waitFor('the run', async () => (await call(gateway, person.token, 'GET', `/api/v1/evals/runs/${run.id}`)).status === 'completed', 30_000)
  await waitFor('the verdict', async () => (await call(gateway, person.token, 'GET', `/api/v1/skills/${skill.id}`)).latest_evaluation, 30_000)
  const { logs } = await call(gateway, person.token, 'GET', '/api/v1/logs?query=status:error')
  return { datasetId: dataset.id, evalId: definition.id, runId: run.id, skillId: skill.id, webhookId: webhook.id, modelId: model.id, server: 'math', sessionId: 'conversation-0', logId: logs[0].id, ...prompt }
}

/** Pages that need more than their route says, or that are shown in several states. */
export function pageList(ids) {
  const path = (route) => route.replace(/\$(\w+)/g, (_, name) => String(ids[name] ?? `no-such-${name}`))
  const routes = definedRoutes().map((route) => ({ name: route === '/' ? 'overview' : route.slice(1).replace(/[/$]+/g, '-'), route, path: path(route), isPublic: /^\/(login|signup|invite|reset)\b/.test(route) }))
  const more = [
    { name: 'logs-drawer', path: `/logs?log=${ids.logId}` },
    { name: 'usage-prices', path: '/usage?view=prices' },
    { name: 'usage-by-user', path: '/usage?by=user&range=this-month' },
    { name: 'evals-runs', path: '/evals?view=runs' },
    { name: 'session-timeline', path: '/sessions/conversation-0?view=timeline' },
    { name: 'not-found', path: '/no/such/page' },
  ]
  return [...routes, ...more]
}

/** Waits until the page shows its data instead of placeholders. */
export async function settle(page) {
  await page.locator('h1').first().waitFor()
  await waitFor('the data', async () => (await page.locator('.skeleton').count()) === 0, 20_000)
}
