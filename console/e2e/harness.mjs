/**
 * Test harness for the browser tests: starts a gateway on a free port with its own data directory, and a Chromium page
 * that records every error. Tests are `node:test` files named `*.e2e.mjs`.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { after, before } from 'node:test'
import { chromium } from 'playwright-core'

const root = resolve(import.meta.dirname, '../..')
const artefacts = resolve(import.meta.dirname, 'artefacts')
const axeSource = readFileSync(resolve(import.meta.dirname, '../node_modules/axe-core/axe.min.js'), 'utf8')
const WIDTHS = { wide: { width: 1280, height: 800 }, narrow: { width: 390, height: 844 } }

function findBinary() {
  const target = process.env.CARGO_TARGET_DIR ?? join(root, 'target')
  const found = [process.env.GATEWAY_BINARY, join(target, 'debug/gateway'), join(target, 'release/gateway')].find((path) => path && existsSync(path))
  assert.ok(found, 'no gateway binary: build one, or name it in GATEWAY_BINARY')
  return found
}

/** Starts a gateway process and waits until it is ready. */
export async function startGateway(env = {}) {
  const data = mkdtempSync(join(tmpdir(), 'gateway-e2e-'))
  const child = spawn(findBinary(), ['serve'], {
    env: { ...process.env, GATEWAY_LISTEN: '127.0.0.1:0', GATEWAY_DATA_DIR: data, GATEWAY_AUTH_ATTEMPTS: '1000', GATEWAY_RATE_LIMIT_FREE: '0', GATEWAY_EGRESS_PRIVATE: 'allow', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  const url = await new Promise((done, fail) => {
    const timer = setTimeout(() => fail(new Error(`the gateway did not start:\n${output}`)), 20_000)
    const read = (chunk) => {
      output += chunk
      const found = /is ready.*?"url":"(http:[^"]+)"/.exec(output)
      if (found) {
        clearTimeout(timer)
        done(found[1])
      }
    }
    child.stdout.on('data', read)
    child.stderr.on('data', read)
    child.on('exit', (code) => fail(new Error(`the gateway exited with ${code}:\n${output}`)))
  })
  const stop = async () => {
    const exited = new Promise((done) => child.once('exit', done))
    child.kill('SIGTERM')
    await exited
    rmSync(data, { recursive: true, force: true })
  }
  return { url, stop, output: () => output }
}

let userCount = 0

/** Creates an organization and its owner through the API. */
export async function signUp(gateway, { plan, slug } = {}) {
  const number = ++userCount
  const email = `person${number}@example.com`
  const password = 'correct horse battery'
  const created = await call(gateway, null, 'POST', '/api/v1/signup', { email, password, org_slug: slug ?? `org-${number}`, org_name: slug ?? `Organization ${number}` })
  const person = { email, password, token: created.token, key: created.api_key, org: created.org, userId: created.user.id }
  if (plan) await call(gateway, person.token, 'PUT', `/api/v1/orgs/${created.org.id}`, { plan })
  return person
}

/** Adds another member with this role to the organization. */
export async function joinAs(gateway, owner, role) {
  const number = ++userCount
  const email = `person${number}@example.com`
  const password = 'correct horse battery'
  const invitation = await call(gateway, owner.token, 'POST', `/api/v1/orgs/${owner.org.id}/members`, { email, role })
  const created = await call(gateway, null, 'POST', '/api/v1/signup', { email, password, invite_token: invitation.invite_token })
  return { email, password, token: created.token, org: owner.org, userId: created.user.id }
}

/** Calls the management API; fails on a non-success status. */
export async function call(gateway, token, method, path, body) {
  const response = await fetch(gateway.url + path, {
    method,
    headers: { ...(token && { Authorization: `Bearer ${token}` }), ...(body && { 'Content-Type': 'application/json' }) },
    body: body && JSON.stringify(body),
  })
  const text = await response.text()
  assert.ok(response.ok, `${method} ${path} returned ${response.status}: ${text}`)
  return text && JSON.parse(text)
}

/** Sends one chat completion to the sandbox provider through the proxy. */
export async function chat(gateway, key, { text = 'Hello!', model = 'sandbox-small', headers = {}, body = {} } = {}) {
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'X-Gateway-Key': key, 'X-Gateway-Provider': 'sandbox', 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: text }], ...body }),
  })
  await response.arrayBuffer()
  return { status: response.status, logId: Number(response.headers.get('x-gateway-log-id')) }
}

/** Ingests many log rows through the OTLP endpoint, two per second backwards from now; `first` numbers the first one. */
export async function fillLogs(gateway, key, count, first = 0) {
  const text = (name, stringValue) => ({ key: name, value: { stringValue } })
  const batch = 2000
  const startedAt = Date.now()
  for (let done = 0; done < count; done += batch) {
    const spans = Array.from({ length: Math.min(batch, count - done) }, (_, at) => {
      const number = first + done + at
      const start = (startedAt - (done + at) * 500) * 1e6
      return {
        traceId: number.toString(16).padStart(32, '1'),
        spanId: number.toString(16).padStart(16, '1'),
        name: 'chat',
        kind: 3,
        startTimeUnixNano: String(BigInt(start)),
        endTimeUnixNano: String(BigInt(start) + 250_000_000n),
        attributes: [text('gen_ai.operation.name', 'chat'), text('gen_ai.provider.name', 'openai'), text('gen_ai.request.model', ['gpt-4o', 'gpt-4o-mini'][number % 2]), { key: 'gen_ai.usage.input_tokens', value: { intValue: '120' } }, { key: 'gen_ai.usage.output_tokens', value: { intValue: '30' } }],
      }
    })
    const response = await fetch(`${gateway.url}/api/v1/otel/v1/traces`, { method: 'POST', headers: { 'X-Gateway-Key': key, 'Content-Type': 'application/json' }, body: JSON.stringify({ resourceSpans: [{ scopeSpans: [{ spans }] }] }) })
    assert.equal(response.status, 200, await response.text())
  }
}

/**
 * Starts a stub provider on loopback that responds like OpenAI and reports usage, so that costs are computed:
 * `startGateway(provider.env)`. The user text `fail` returns a 500.
 */
export async function startProvider() {
  const server = createServer((request, response) => {
    const chunks = []
    request.on('data', (chunk) => chunks.push(chunk))
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(chunks).toString() || '{}')
      const userText = body.messages?.at(-1)?.content ?? ''
      response.setHeader('Content-Type', 'application/json')
      if (userText === 'fail') {
        response.statusCode = 500
        response.end(JSON.stringify({ error: { message: 'the model is having a bad day', type: 'server_error' } }))
        return
      }
      const reply = `You said ${userText.length} characters.`
      const usage = { prompt_tokens: 1000 + userText.length, completion_tokens: 400, total_tokens: 1400 + userText.length, prompt_tokens_details: { cached_tokens: 200 }, completion_tokens_details: { reasoning_tokens: 100 } }
      response.end(JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: body.model, choices: [{ index: 0, message: { role: 'assistant', content: reply }, finish_reason: 'stop' }], usage }))
    })
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  const url = `http://127.0.0.1:${server.address().port}`
  return {
    env: { GATEWAY_PROVIDER_OPENAI_BASE_URL: url, GATEWAY_PROVIDER_OPENAI_API_KEY: 'sk-test' },
    stop: () => new Promise((done) => server.close(done)),
  }
}

export async function waitFor(what, check, timeout = 10_000) {
  const end = Date.now() + timeout
  for (;;) {
    const found = await check()
    if (found) return found
    assert.ok(Date.now() < end, `timed out waiting for ${what}`)
    await new Promise((done) => setTimeout(done, 50))
  }
}

export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  })
}

/**
 * Opens a page, signed in as `person` if given. It records content security policy violations, console errors and
 * requests to other origins; `clean()` fails on any of them.
 */
export async function openPage(browser, gateway, { person, size = 'wide', theme = 'light', path = '/', prefs = {} } = {}) {
  const context = await browser.newContext({ viewport: WIDTHS[size], colorScheme: theme, permissions: ['clipboard-read', 'clipboard-write'], baseURL: gateway.url, timezoneId: 'UTC', locale: 'en-US' })
  const problems = []
  await context.addInitScript(
    ([session, initialPrefs]) => {
      if (session && !localStorage.getItem('console.session')) localStorage.setItem('console.session', session)
      if (!localStorage.getItem('console.prefs')) localStorage.setItem('console.prefs', initialPrefs)
      document.addEventListener('securitypolicyviolation', (event) => console.error(`csp: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`))
    },
    [person ? JSON.stringify({ token: person.token, email: person.email }) : null, JSON.stringify(prefs)],
  )
  const page = await context.newPage()
  page.on('console', (message) => message.type() === 'error' && problems.push(`${message.text()} ${message.location().url}`))
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('request', (request) => {
    if (!request.url().startsWith(gateway.url) && !/^(data|blob):/.test(request.url())) problems.push(`request to ${request.url()}`)
  })
  page.clean = ({ allow } = {}) => {
    const bad = problems.filter((problem) => !allow?.test(problem))
    problems.length = 0
    assert.deepEqual(bad, [], 'the page had problems')
  }
  page.setDefaultTimeout(10_000)
  await page.goto(`/console${path}`)
  return page
}

/** Counts the bytes of API responses as they come over the wire, compressed and with headers. */
export async function countApiBytes(page) {
  const devtools = await page.context().newCDPSession(page)
  const received = new Map()
  devtools.on('Network.responseReceived', ({ requestId, response }) => response.url.includes('/api/') && received.set(requestId, response.encodedDataLength))
  devtools.on('Network.dataReceived', ({ requestId, encodedDataLength }) => received.has(requestId) && received.set(requestId, received.get(requestId) + encodedDataLength))
  // The total replaces the parts; a stream that goes on has only parts.
  devtools.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => received.has(requestId) && received.set(requestId, encodedDataLength))
  await devtools.send('Network.enable')
  return { bytes: () => [...received.values()].reduce((sum, size) => sum + size, 0) }
}

/**
 * Runs axe at both widths and in both themes. With SCREENSHOTS=1 it also takes screenshots; they are written to
 * artefacts/.
 */
export async function inspect(page, name) {
  const before = page.viewportSize()
  for (const [size, viewport] of Object.entries(WIDTHS)) {
    await page.setViewportSize(viewport)
    for (const theme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: theme })
      await page.waitForTimeout(100)
      if (process.env.SCREENSHOTS === '1') {
        mkdirSync(artefacts, { recursive: true })
        await page.screenshot({ path: join(artefacts, `${name}-${size}-${theme}.png`) })
      }
      await expectAccessible(page, `${name} ${size} ${theme}`, theme)
    }
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
    assert.ok(overflow <= 0, `${name} is ${overflow} px too wide for ${viewport.width} px`)
  }
  await page.setViewportSize(before)
  await page.emulateMedia({ colorScheme: 'light' })
}

/** Fails on violations of WCAG A and AA. A theme changes only colours, so the dark one is checked by the rules about them. */
export async function expectAccessible(page, name, theme = 'light') {
  // Injected through the DevTools protocol, so the page's content security policy does not block it.
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axeSource)
  const runOnly = theme === 'dark' ? { type: 'rule', values: ['color-contrast', 'link-in-text-block'] } : ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']
  const { violations } = await page.evaluate((runOnly) => window.axe.run(document, { runOnly, resultTypes: ['violations'], preload: false }), runOnly)
  const found = violations.map((violation) => `${violation.impact}: ${violation.id}: ${violation.nodes.map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`).join('\n    ')}`)
  assert.deepEqual(found, [], `axe on ${name}`)
}

/**
 * Starts a gateway and a browser before the tests of a file and stops them afterwards; `prepare` creates shared data.
 * With `env: 'provider'` it also starts the stub provider.
 */
export function setUp(env, prepare) {
  const shared = { gateway: null, browser: null, provider: null }
  before(async () => {
    if (env === 'provider') shared.provider = await startProvider()
    shared.gateway = await startGateway(shared.provider?.env ?? env)
    shared.browser = await launch()
    await prepare?.(shared)
  })
  after(async () => {
    await shared.browser?.close()
    await shared.gateway?.stop()
    await shared.provider?.stop()
  })
  return shared
}
