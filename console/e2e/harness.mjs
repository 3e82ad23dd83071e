/**
 * The browser tests' tools: a real gateway on a free port with data of its own, a real Chromium, a page that notices
 * everything that goes wrong in it. Tests are plain `node:test` files named `*.e2e.mjs`.
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

/** Starts a gateway of its own and waits until it is ready. */
export async function startGateway(env = {}) {
  const data = mkdtempSync(join(tmpdir(), 'gateway-e2e-'))
  const child = spawn(findBinary(), ['serve'], {
    env: { ...process.env, GATEWAY_LISTEN: '127.0.0.1:0', GATEWAY_DATA_DIR: data, GATEWAY_AUTH_ATTEMPTS: '1000', GATEWAY_RATE_LIMIT_FREE: '0', ...env },
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
    child.on('exit', (code) => fail(new Error(`the gateway ended with ${code}:\n${output}`)))
  })
  const stop = async () => {
    const gone = new Promise((done) => child.once('exit', done))
    child.kill('SIGTERM')
    await gone
    rmSync(data, { recursive: true, force: true })
  }
  return { url, stop, output: () => output }
}

let people = 0

/** A new organization with its owner, made through the API. */
export async function signUp(gateway, { plan, slug } = {}) {
  const number = ++people
  const email = `person${number}@example.com`
  const password = 'correct horse battery'
  const made = await call(gateway, null, 'POST', '/api/v1/signup', { email, password, org_slug: slug ?? `org-${number}`, org_name: slug ?? `Organization ${number}` })
  const person = { email, password, token: made.token, key: made.api_key, org: made.org, userId: made.user.id }
  if (plan) await call(gateway, person.token, 'PUT', `/api/v1/orgs/${made.org.id}`, { plan })
  return person
}

/** Another person in the same organization, with this role. */
export async function joinAs(gateway, owner, role) {
  const number = ++people
  const email = `person${number}@example.com`
  const password = 'correct horse battery'
  const invitation = await call(gateway, owner.token, 'POST', `/api/v1/orgs/${owner.org.id}/members`, { email, role })
  const made = await call(gateway, null, 'POST', '/api/v1/signup', { email, password, invite_token: invitation.invite_token })
  return { email, password, token: made.token, org: owner.org, userId: made.user.id }
}

/** A call of the management API; fails on anything but success. */
export async function call(gateway, token, method, path, body) {
  const response = await fetch(gateway.url + path, {
    method,
    headers: { ...(token && { Authorization: `Bearer ${token}` }), ...(body && { 'Content-Type': 'application/json' }) },
    body: body && JSON.stringify(body),
  })
  const text = await response.text()
  assert.ok(response.ok, `${method} ${path} answered ${response.status}: ${text}`)
  return text && JSON.parse(text)
}

/** One proxied chat completion to the sandbox provider. */
export async function chat(gateway, key, { text = 'Hello!', model = 'sandbox-small', headers = {}, body = {} } = {}) {
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'X-Gateway-Key': key, 'X-Gateway-Provider': 'sandbox', 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: text }], ...body }),
  })
  await response.arrayBuffer()
  return { status: response.status, logId: Number(response.headers.get('x-gateway-log-id')) }
}

/** Many rows at once, by the way that traces of other tools come in; two a second, back from now. */
export async function fillLogs(gateway, key, count) {
  const text = (name, stringValue) => ({ key: name, value: { stringValue } })
  const batch = 2000
  const began = Date.now()
  for (let done = 0; done < count; done += batch) {
    const spans = Array.from({ length: Math.min(batch, count - done) }, (_, at) => {
      const number = done + at
      const start = (began - number * 500) * 1e6
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
 * A provider of our own on loopback that answers like OpenAI and reports usage, so that there are prices and costs:
 * `startGateway(provider.env)`. A user text of `fail` gets a 500.
 */
export async function startProvider() {
  const server = createServer((request, response) => {
    const chunks = []
    request.on('data', (chunk) => chunks.push(chunk))
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(chunks).toString() || '{}')
      const said = body.messages?.at(-1)?.content ?? ''
      response.setHeader('Content-Type', 'application/json')
      if (said === 'fail') {
        response.statusCode = 500
        response.end(JSON.stringify({ error: { message: 'the model is having a bad day', type: 'server_error' } }))
        return
      }
      const words = `You said ${said.length} characters.`
      const usage = { prompt_tokens: 1000 + said.length, completion_tokens: 400, total_tokens: 1400 + said.length, prompt_tokens_details: { cached_tokens: 200 }, completion_tokens_details: { reasoning_tokens: 100 } }
      response.end(JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: body.model, choices: [{ index: 0, message: { role: 'assistant', content: words }, finish_reason: 'stop' }], usage }))
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
 * A page, signed in as `person` when given. It remembers every violation of the content security policy, every error
 * in the console and every request that left the gateway; `clean()` fails on any.
 */
export async function openPage(browser, gateway, { person, size = 'wide', theme = 'light', path = '/', prefs = {} } = {}) {
  const context = await browser.newContext({ viewport: WIDTHS[size], colorScheme: theme, permissions: ['clipboard-read', 'clipboard-write'], baseURL: gateway.url, timezoneId: 'UTC', locale: 'en-US' })
  const problems = []
  await context.addInitScript(
    ([session, wanted]) => {
      if (session && !localStorage.getItem('console.session')) localStorage.setItem('console.session', session)
      if (!localStorage.getItem('console.prefs')) localStorage.setItem('console.prefs', wanted)
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

/** Axe in both themes, and screenshots at both widths and in both themes, kept under artefacts/. */
export async function inspect(page, name) {
  mkdirSync(artefacts, { recursive: true })
  const before = page.viewportSize()
  for (const [size, viewport] of Object.entries(WIDTHS)) {
    await page.setViewportSize(viewport)
    for (const theme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: theme })
      await page.waitForTimeout(100)
      await page.screenshot({ path: join(artefacts, `${name}-${size}-${theme}.png`) })
      await expectAccessible(page, `${name} ${size} ${theme}`)
    }
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
    assert.ok(overflow <= 0, `${name} is ${overflow} px too wide for ${viewport.width} px`)
  }
  await page.setViewportSize(before)
  await page.emulateMedia({ colorScheme: 'light' })
}

export async function expectAccessible(page, name) {
  // Injected by the test protocol, not by the page: the policy of the page stays as it is.
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axeSource)
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations'] }))
  const found = violations.map((violation) => `${violation.impact}: ${violation.id}: ${violation.nodes.map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`).join('\n    ')}`)
  assert.deepEqual(found, [], `axe on ${name}`)
}

/**
 * Before and after all tests of a file: a gateway and a browser; then `prepare` makes what its tests share. With
 * `env: 'provider'` there is a provider with prices too.
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
