import assert from 'node:assert/strict'
import test from 'node:test'
import { call, inspect, joinAs, openPage, setUp, signUp, waitFor } from './harness.mjs'

const shared = setUp()

const GOOD = `---
name: changelog-entry
headline: One line per change that users notice
description: Writes an entry for CHANGELOG.md from a merged pull request. Use when a pull request was merged or the user asks for a changelog entry.
---

# Write a changelog entry

1. Read the title and the description of the pull request: \`gh pr view NUMBER --json title,body,labels\`.
2. Choose the heading: \`Added\`, \`Changed\`, \`Fixed\` or \`Removed\`. The label \`breaking\` always goes under \`Changed\`.
3. Write one line in the past tense, at most 100 characters, with the number in brackets at its end.
4. Put it under \`## Unreleased\` in \`CHANGELOG.md\`, newest first.

## Example

    ### Fixed
    - Uploads resume after a lost connection (#412)

Check that the file still has one \`## Unreleased\` heading: \`grep -c '^## Unreleased' CHANGELOG.md\` must print 1.
Do not write an entry for changes of tests or of the build; say so instead.
`
const OTHER = `---
name: release-notes
description: Turns the commits since the last tag into notes for customers. Use before a release.
---

# Tell customers what is new

1. List the commits: \`git log $(git describe --tags --abbrev=0)..HEAD --oneline\`.
2. Drop those that nobody outside notices, and group the others by product area.
3. Write two sentences for each group, without names of people or branches.

For example: "Invoices can now be downloaded as PDF."
`
const POOR = '---\nname: changelog-entry\ndescription: Does things\n---\n\nDo it.\n'

const create = (person, raw_source = GOOD) => call(shared.gateway, person.token, 'POST', '/api/v1/skills', { raw_source })
const judged = (person, id) =>
  waitFor('the verdict', async () => (await call(shared.gateway, person.token, 'GET', `/api/v1/skills/${id}`)).latest_evaluation)
const text = (page) => page.getByRole('textbox', { name: 'SKILL.md' })

/** Replaces the editor content as a paste does. */
async function paste(page, source) {
  await page.evaluate((words) => navigator.clipboard.writeText(words), source)
  await text(page).focus()
  await page.keyboard.press('Control+a')
  await page.keyboard.press('Control+v')
}

test('without the plan the page says what it does, and an owner can change the plan', async () => {
  const person = await signUp(shared.gateway, { plan: 'free' })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/skills' })
  await page.getByRole('heading', { name: 'Skills are turned off' }).waitFor()
  await inspect(page, 'skills-plan')
  await page.getByRole('button', { name: 'Turn on skills' }).click()
  await page.getByRole('heading', { name: 'No skills yet' }).waitFor()
  await inspect(page, 'skills-empty')
  page.clean()
})

test('a skill is written with a live check, judged by axis, and published only when it has passed', async () => {
  const person = await signUp(shared.gateway, { plan: 'enterprise' })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/skills' })
  await page.getByRole('button', { name: 'New skill' }).first().click()
  const dialog = page.getByRole('dialog', { name: 'New skill' })
  await dialog.getByText('Front matter is valid').waitFor()
  await paste(page, '---\nname: Not Kebab\n---\n\nDo it.')
  await dialog.getByText('Line 2: name: must be kebab-case', { exact: false }).waitFor()
  await dialog.getByText('description: is required', { exact: false }).waitFor()
  assert.equal(await dialog.getByRole('button', { name: 'Create skill' }).getAttribute('aria-disabled'), 'true')
  await inspect(page, 'skill-new')
  await paste(page, POOR.replace('Does things', '[unclosed'))
  await dialog.getByRole('button', { name: 'Create skill' }).click()
  await dialog.getByText(/^Line 3: .*unclosed bracket/).waitFor()
  await paste(page, POOR)
  await dialog.getByRole('button', { name: 'Create skill' }).click()
  await page.getByRole('heading', { name: 'changelog-entry' }).waitFor()
  await page.getByRole('list', { name: 'Axes' }).getByText('clarity').waitFor()
  await page.getByText(/^v1 can't be published: it scored 0\.\d\d and did not pass; 0\.70 is required\.$/).locator('visible=true').waitFor()
  assert.equal(await page.getByRole('button', { name: 'Publish v1' }).getAttribute('aria-disabled'), 'true')
  await inspect(page, 'skill-failed')

  await paste(page, GOOD)
  await page.keyboard.press('Control+s')
  await page.getByText('Evaluation of v2').waitFor()
  await page.getByRole('list', { name: 'Axes' }).waitFor()
  await page.getByText(/Grey: v1/).waitFor()
  await page.getByRole('img', { name: /^Scores of v2/ }).waitFor()
  await page.getByRole('button', { name: 'Publish v2' }).click()
  const publish = page.getByRole('dialog', { name: /v2\?/ })
  await publish.getByText('No licence stated').waitFor()
  await publish.getByRole('heading', { name: 'Write a changelog entry' }).waitFor()
  await inspect(page, 'skill-publish')
  await publish.getByRole('button', { name: 'Publish v2' }).click()
  await page.getByText('v2 is on the shelf').waitFor()
  await inspect(page, 'skill')
  assert.match(await text(page).innerText(), /Write a changelog entry/, 'what was saved stays in the editor')
  await page.getByRole('button', { name: 'Compare v1 with v2' }).click()
  await page.locator('ins').first().waitFor()
  await inspect(page, 'skill-changes')
  await page.getByRole('button', { name: 'Evaluate again' }).click()
  await waitFor('another verdict', async () => (await page.getByRole('list', { name: 'Verdicts' }).getByRole('listitem').count()) === 3)
  await page.getByRole('link', { name: 'All skills' }).click()
  await page.getByRole('region', { name: 'Skills' }).getByText('on the shelf').waitFor()
  await inspect(page, 'skills')
  page.clean({ allow: /4(00|22)/ })
})

test('an external verdict counts only when the rubric allows its source', async () => {
  const person = await signUp(shared.gateway, { plan: 'enterprise' })
  const { id } = await create(person, POOR)
  await judged(person, id)
  await call(shared.gateway, person.token, 'POST', '/api/v1/eval-results', { subject_type: 'skill', subject_id: id, source: 'scanner', score: 0.95, passed: true, external_ref: 'scan-17' })
  const page = await openPage(shared.browser, shared.gateway, { person, path: `/skills/${id}` })
  await page.getByRole('list', { name: 'Verdicts' }).getByText('scanner').waitFor()
  assert.equal(await page.getByRole('button', { name: 'Publish v1' }).getAttribute('aria-disabled'), 'true')
  await page.goto('/console/skills/rubric')
  await page.getByLabel('Sources that count').fill('internal, scanner')
  await page.getByText('0 of 1 skill').waitFor()
  await page.getByRole('slider', { name: /^Threshold to pass/ }).fill('0.05')
  await page.getByText('1 of 1 skill').waitFor()
  await page.getByRole('slider', { name: /^Threshold to pass/ }).fill('0.7')
  await page.getByRole('slider', { name: /^safety/ }).fill('1')
  await page.getByText('55.6%').waitFor()
  await inspect(page, 'skills-rubric')
  await page.getByRole('button', { name: 'Save rubric' }).click()
  await page.getByText('Rubric saved').waitFor()
  await page.goto(`/console/skills/${id}`)
  await page.getByRole('button', { name: 'Publish v1' }).click()
  await page.getByRole('dialog', { name: /v1\?/ }).getByRole('button', { name: 'Publish v1' }).click()
  await page.getByText('v1 is on the shelf').waitFor()
  page.clean()
})

test('a skill of another organization is found on the shelf and copied, under another name where it must be', async () => {
  const publisher = await signUp(shared.gateway, { plan: 'enterprise', slug: 'makers' })
  const rubric = await call(shared.gateway, publisher.token, 'GET', '/api/v1/skills/rubric')
  await call(shared.gateway, publisher.token, 'PUT', `/api/v1/skills/rubric/${rubric.id}`, { pass_threshold: 0.1 })
  const { id } = await create(publisher, OTHER)
  await judged(publisher, id)
  await call(shared.gateway, publisher.token, 'POST', `/api/v1/skills/${id}/publish`)
  const person = await signUp(shared.gateway, { plan: 'enterprise' })
  await create(person, OTHER)
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/shelf?q=release-notes' })
  await page.getByRole('button', { name: 'release-notes', exact: true }).click()
  await page.getByRole('dialog', { name: 'Skill of the shelf' }).getByRole('region', { name: 'SKILL.md' }).waitFor()
  await page.getByText('given by the gateway’s judge').waitFor()
  await inspect(page, 'shelf-detail')
  await page.keyboard.press('Escape')
  await inspect(page, 'shelf')
  await page.getByRole('button', { name: 'Copy release-notes' }).click()
  await page.getByText('the copy is called release-notes-adopted-1').waitFor()
  await page.getByText('Copied from makers/release-notes, version 1 (up to date)').waitFor()
  await page.goto('/console/shelf?q=nothing-like-this')
  await page.getByRole('heading', { name: 'No skills match' }).waitFor()
  page.clean()
})

test('a viewer reads, and sees why nothing can be changed', async () => {
  const owner = await signUp(shared.gateway, { plan: 'enterprise' })
  const { id } = await create(owner)
  await judged(owner, id)
  const viewer = await joinAs(shared.gateway, owner, 'viewer')
  const page = await openPage(shared.browser, shared.gateway, { person: viewer, path: `/skills/${id}` })
  await page.locator('p', { hasText: 'Needs the role member; you are viewer' }).waitFor()
  for (const name of ['Publish v1', 'Evaluate again', 'Save version']) assert.equal(await page.getByRole('button', { name }).getAttribute('aria-disabled'), 'true', name)
  await inspect(page, 'skill-viewer')
  await page.goto('/console/skills/rubric')
  await page.locator('p', { hasText: 'Needs the role member; you are viewer' }).waitFor()
  assert.equal(await page.getByLabel('Sources that count').isDisabled(), true)
  page.clean()
})

test('the install page has commands with a key, and says why links are off', async () => {
  const person = await signUp(shared.gateway, { plan: 'enterprise' })
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/skills' })
  await page.getByRole('navigation', { name: 'Parts of skills' }).getByRole('link', { name: 'Install' }).click()
  await page.getByRole('heading', { name: 'No install links' }).waitFor()
  await page.getByText('GATEWAY_INSTALL_LINKS=true', { exact: false }).first().waitFor()
  assert.equal(await page.getByRole('button', { name: 'New link' }).getAttribute('aria-disabled'), 'true')
  assert.match(await page.getByRole('region', { name: 'git' }).innerText(), /clone http.*\/api\/v1\/skills\/install\/skills\.git/)
  await inspect(page, 'skills-install')
  page.clean()
})
