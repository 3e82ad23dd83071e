/** All matching rows: streamed to a file with progress, stopped, cut; made into cases and evaluated by the query. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { call, chat, fillLogs, inspect, openPage, setUp, signUp, waitFor } from './harness.mjs'

const ROWS = 1_200
let person
const shared = setUp(undefined, async ({ gateway }) => {
  person = await signUp(gateway)
  await fillLogs(gateway, person.key, ROWS)
  await waitFor('the rows', async () => (await call(gateway, person.token, 'GET', '/api/v1/usage/summary')).requests >= ROWS, 30_000)
})

const dialog = (page) => page.getByRole('dialog', { name: 'Export all matching rows' })

/** A page on all rows. `picker` is a script that replaces the browser's file dialog, which a test cannot use. */
async function openLogs(picker) {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/account' })
  await page.addInitScript(picker)
  await page.goto('/console/logs?query=source%3Aotel')
  await page.getByText('200 rows loaded, more below').waitFor()
  return page
}
const openExport = async (page) => {
  await page.getByRole('button', { name: 'Export', exact: true }).click()
  await dialog(page).getByText(`${ROWS.toLocaleString('en-US')} rows of the current query`).waitFor()
}
const NO_FILES = () => delete window.showSaveFilePicker
/** Files are written into a variable of the page. */
const TO_PAGE = () => {
  window.showSaveFilePicker = async ({ suggestedName }) => {
    window.file = { name: suggestedName, text: '', state: 'open' }
    const decoder = new TextDecoder()
    return {
      createWritable: async () => ({
        write: async (chunk) => void (window.file.text += decoder.decode(chunk, { stream: true })),
        close: async () => void (window.file.state = 'complete'),
        abort: async () => void (window.file.state = 'aborted'),
      }),
    }
  }
}

test('without access to files all rows are downloaded', async () => {
  const page = await openLogs(NO_FILES)
  await openExport(page)
  await dialog(page).getByText('keeps the file in memory').waitFor()
  await inspect(page, 'logs-export')
  await page.getByLabel('Format').selectOption('ndjson')
  const [file] = await Promise.all([page.waitForEvent('download'), dialog(page).getByRole('button', { name: 'Export' }).click()])
  assert.equal(file.suggestedFilename(), 'logs.ndjson')
  const lines = readFileSync(await file.path(), 'utf8').trimEnd().split('\n')
  assert.equal(new Set(lines.map((line) => JSON.parse(line).id)).size, ROWS)
  await page.getByText(/^Exported 1,200 rows \(/).waitFor()
  page.clean()
})

test('rows are streamed to a file, and the command for outside of the browser is copied', async () => {
  const page = await openLogs(TO_PAGE)
  await openExport(page)
  await dialog(page).getByRole('button', { name: 'curl command' }).click()
  const command = await page.evaluate(() => navigator.clipboard.readText())
  assert.match(command, /^curl -f -H "X-Gateway-Key: \$GATEWAY_KEY" 'http:.*\/api\/v1\/logs\/export\?format=csv&query=source%3Aotel&from=/)
  await dialog(page).getByRole('button', { name: 'Export' }).click()
  await page.getByText(/^Exported 1,200 rows \(/).waitFor()
  const file = await page.evaluate(() => window.file)
  assert.deepEqual([file.name, file.state], ['logs.csv', 'complete'])
  assert.equal(file.text.trimEnd().split('\n').length, ROWS + 1)
  page.clean()
})

test('a download shows its progress and is stopped', async () => {
  const page = await openLogs(TO_PAGE)
  // The first page of rows arrives, then nothing.
  await page.evaluate(() => {
    const original = window.fetch
    window.fetch = async (...call) => {
      const response = await original(...call)
      if (!String(call[0]).includes('/logs/export')) return response
      const { value } = await response.body.getReader().read()
      return new Response(new ReadableStream({
        start(controller) {
          controller.enqueue(value)
          call[1].signal.addEventListener('abort', () => controller.error(new DOMException('stopped', 'AbortError')))
        },
      }))
    }
  })
  await openExport(page)
  await dialog(page).getByRole('button', { name: 'Export' }).click()
  await dialog(page).getByText(/^[1-9]\d* of 1,200 rows, [\d.]+ KiB$/).waitFor()
  await inspect(page, 'logs-export-running')
  await dialog(page).getByRole('button', { name: 'Stop' }).click()
  await dialog(page).getByRole('button', { name: 'Cancel' }).waitFor()
  assert.equal(await page.evaluate(() => window.file.state), 'aborted')
  page.clean()
})

test('a download that is cut says so, and leaves no file', async () => {
  const page = await openLogs(TO_PAGE)
  await page.evaluate(() => {
    const original = window.fetch
    window.fetch = async (...call) => {
      if (!String(call[0]).includes('/logs/export')) return original(...call)
      let sent = false
      return new Response(new ReadableStream({
        pull(controller) {
          if (sent) return controller.error(new TypeError('network error'))
          sent = true
          controller.enqueue(new TextEncoder().encode('id\n1\n2\n'))
        },
      }))
    }
  })
  await openExport(page)
  await dialog(page).getByRole('button', { name: 'Export' }).click()
  await dialog(page).getByText('The download was cut after 2 rows (7 B). Nothing was saved').waitFor()
  await inspect(page, 'logs-export-cut')
  assert.equal(await page.evaluate(() => window.file.state), 'aborted')
  page.clean()
})

test('all matching rows become cases, and are evaluated, by the query', async () => {
  const gateway = shared.gateway
  for (let at = 0; at < 3; at++) await chat(gateway, person.key, { text: `Case ${at}` })
  const dataset = await call(gateway, person.token, 'POST', '/api/v1/datasets', { name: 'From a query' })
  await call(gateway, person.token, 'POST', '/api/v1/evals', { name: 'Greets', type: 'static', evaluator: 'contains', config: { value: 'a' } })
  const page = await openPage(shared.browser, gateway, { person, path: '/logs?query=provider%3Asandbox' })
  await waitFor('3 rows', async () => (await page.locator('[data-row]').count()) === 3)
  const bar = page.getByRole('region', { name: 'Selected rows' })
  await page.getByRole('grid').getByRole('checkbox').first().click()
  await bar.getByText('3 rows selected').waitFor()
  await bar.getByRole('button', { name: 'Select all 3 matching rows' }).click()
  await bar.getByText('All 3 matching rows selected').waitFor()
  await inspect(page, 'logs-all-matching')
  await bar.getByRole('button', { name: 'Add to dataset' }).click()
  const sent = page.waitForRequest((request) => request.url().endsWith('/from-logs'))
  await page.getByRole('button', { name: 'Add cases' }).click()
  const body = (await sent).postDataJSON()
  assert.deepEqual([body.log_ids, body.query, body.limit], [undefined, 'provider:sandbox -source:api,replay', 3])
  await page.getByText('Added 3 test cases').waitFor()
  assert.equal((await call(gateway, person.token, 'GET', `/api/v1/datasets/${dataset.id}/cases`)).cases.length, 3)
  await bar.getByRole('button', { name: 'Run an eval' }).click()
  const run = page.waitForRequest((request) => request.url().endsWith('/run'))
  await page.getByRole('dialog').getByRole('button', { name: 'Run' }).click()
  assert.equal((await run).postDataJSON().query, 'provider:sandbox -source:api,replay')
  await page.waitForURL(/\/evals\/runs\/\d+/)
  page.clean()
})

test('a click on a row ends the choice of all matching rows', async () => {
  const page = await openPage(shared.browser, shared.gateway, { person, path: '/logs?query=source%3Aotel' })
  await page.getByText('200 rows loaded, more below').waitFor()
  const bar = page.getByRole('region', { name: 'Selected rows' })
  await page.getByRole('grid').getByRole('checkbox').first().click()
  await bar.getByText('200 rows selected').waitFor()
  await bar.getByRole('button', { name: 'Select all 1,200 matching rows' }).click()
  await bar.getByRole('button', { name: 'Add to dataset' }).click()
  await page.getByRole('dialog', { name: 'Add the latest 1,000 matching requests to a dataset' }).waitFor()
  await page.keyboard.press('Escape')
  await page.locator('[data-row]').first().getByRole('checkbox').click()
  await bar.getByText('199 rows selected').waitFor()
  page.clean()
})
