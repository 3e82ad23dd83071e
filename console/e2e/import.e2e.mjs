import assert from 'node:assert/strict'
import test from 'node:test'
import { call, inspect, joinAs, openPage, setUp, signUp, waitFor } from './harness.mjs'

const shared = setUp()

const CONFIG = `model_list:
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: sk-secret-in-the-file, rpm: 600}
  - model_name: claude
    litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: os.environ/ANTHROPIC_API_KEY}
router_settings:
  fallbacks: [{gpt-4o: [claude]}]
  cooldown_time: 30
general_settings:
  custom_auth: our_code.check
`

test('a file is read as a plan with its findings, applied, and used', async () => {
  const person = await signUp(shared.gateway)
  const models = () => call(shared.gateway, person.token, 'GET', `/api/v1/orgs/${person.org.id}/models`)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/import' })
  await page.getByRole('heading', { name: 'Import' }).waitFor()
  await page.getByLabel('Portkey').check()
  await inspect(page, 'import')
  await page.getByLabel('File', { exact: true }).setInputFiles({ name: 'config.yaml', mimeType: 'application/yaml', buffer: Buffer.from(CONFIG) })
  await page.getByText('config.yaml,').waitFor()
  assert.ok(await page.getByLabel('LiteLLM', { exact: true }).isChecked(), 'the file says where it comes from')
  assert.equal(await page.getByLabel('Or paste its text').count(), 0, 'the text of a file is not shown')
  await page.getByRole('button', { name: 'Review plan' }).click()
  await page.getByRole('heading', { name: 'The plan' }).waitFor()
  const findings = page.getByRole('list', { name: 'Findings' })
  await findings.getByText('general_settings.custom_auth').waitFor()
  await findings.getByText('model_list[0].litellm_params.rpm').waitFor()
  await page.getByRole('region', { name: 'Providers' }).getByText('in the file').waitFor()
  await page.getByRole('region', { name: 'Providers' }).getByText('to be added').waitFor()
  await page.getByRole('region', { name: 'Models' }).getByText('openai/gpt-4o, anthropic/claude-sonnet-4-5').waitFor()
  await inspect(page, 'import-plan')
  const shown = await findings.getByRole('listitem').count()
  await page.getByRole('button', { name: /^manual/ }).click()
  await waitFor('the filter', async () => (await findings.getByRole('listitem').count()) < shown)
  await page.getByLabel('Search findings').fill('custom_auth')
  await page.getByRole('heading', { name: 'No findings match' }).waitFor()
  await page.getByRole('button', { name: 'Clear' }).click()
  assert.deepEqual((await models()).models, [], 'a plan writes nothing')

  await page.getByRole('button', { name: 'Apply…' }).click()
  const confirm = page.getByRole('dialog', { name: /^Import \d changes\?$/ })
  await inspect(page, 'import-confirm')
  await confirm.getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('heading', { name: 'Imported' }).waitFor()
  await page.getByText('Add the credential that the file does not have in').waitFor()
  await page.getByRole('region', { name: 'LiteLLM' }).getByText(`${shared.gateway.url}/compat/litellm`).waitFor()
  await page.getByText('GATEWAY_COMPAT=litellm').waitFor()
  await inspect(page, 'import-done')
  assert.deepEqual((await models()).models.map((model) => model.name).sort(), ['claude', 'gpt-4o'])
  assert.ok(!(await page.content()).includes('sk-secret-in-the-file'), 'the result shows no secret')
  await page.getByRole('region', { name: 'Models' }).getByRole('link', { name: 'claude' }).click()
  await page.getByRole('link', { name: 'claude' }).waitFor()
  page.clean()
})

test('the same file changes nothing, other content is a conflict that a person decides', async () => {
  const person = await signUp(shared.gateway)
  const importing = { source: 'litellm', data: CONFIG, apply: true }
  await call(shared.gateway, person.token, 'POST', `/api/v1/orgs/${person.org.id}/import`, importing)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/import' })
  await page.getByLabel('Or paste its text').fill(CONFIG)
  await page.getByRole('button', { name: 'Review plan' }).click()
  await page.getByText('There is nothing to import').first().waitFor()
  assert.equal(await page.getByRole('button', { name: 'Apply…' }).getAttribute('aria-disabled'), 'true')

  await page.getByLabel('Or paste its text').fill(CONFIG.replace('fallbacks: [{gpt-4o: [claude]}]', 'fallbacks: [{claude: [gpt-4o]}]'))
  await page.getByRole('heading', { name: 'The plan' }).waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Review plan' }).click()
  await page.getByRole('heading', { name: '2 names exist with other content' }).waitFor()
  await inspect(page, 'import-conflict')
  await page.getByLabel('Replace it').check()
  await page.getByRole('region', { name: 'Models' }).getByText('replaces').first().waitFor()
  await page.getByRole('button', { name: 'Apply…' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('heading', { name: 'Imported' }).waitFor()
  const claude = await call(shared.gateway, person.token, 'GET', `/api/v1/orgs/${person.org.id}/models/claude`)
  assert.deepEqual([claude.version, claude.targets.length], [2, 2])
  page.clean()
})

test('keys of LiteLLM are planned with their scopes and budgets', async () => {
  const person = await signUp(shared.gateway)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/import' })
  await page.getByLabel('LiteLLM keys').check()
  await page.getByLabel('Or paste its text').fill(`token,key_name,key_alias,spend,models,blocked,max_budget,budget_duration\n${'a'.repeat(64)},sk-...Ab1c,ci,3.5,"{gpt-4o}",f,25,30d\n`)
  await page.getByRole('button', { name: 'Review plan' }).click()
  const keys = page.getByRole('region', { name: 'Keys' })
  await keys.getByText('model:gpt-4o').waitFor()
  await keys.getByText(/\$25/).waitFor()
  await inspect(page, 'import-keys')
  await page.getByRole('button', { name: 'Apply…' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('heading', { name: 'Imported' }).waitFor()
  await page.getByRole('main').getByRole('link', { name: 'Keys' }).click()
  await page.getByRole('row').filter({ hasText: 'ci' }).getByText('imported from litellm').waitFor()
  await page.getByRole('note').getByText(/1 key of another gateway is accepted.*None made a call/).waitFor()
  await inspect(page, 'keys-imported')
  page.clean()
})

test('what cannot be read is said at the field, and a member may not import', async () => {
  const owner = await signUp(shared.gateway)
  const page = await openPage(shared.browser, shared.gateway, { person: owner, path: '/import' })
  await page.getByLabel('Portkey').check()
  await page.getByLabel('Or paste its text').fill('{"configs": [')
  await page.getByRole('button', { name: 'Review plan' }).click()
  await page.getByRole('alert').getByText(/the source cannot be read/).waitFor()
  await inspect(page, 'import-malformed')
  page.clean({ allow: /400/ })
  const member = await joinAs(shared.gateway, owner, 'member')
  const looking = await openPage(shared.browser, shared.gateway, { person: member, path: '/import' })
  const button = looking.getByRole('button', { name: 'Review plan' })
  await waitFor('the role', async () => (await button.getAttribute('title'))?.includes('Needs the role admin'))
  looking.clean()
})
