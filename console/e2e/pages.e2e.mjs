/** What holds for every page: it is accessible in both themes and at both widths, and light enough for a slow machine. */
import assert from 'node:assert/strict'
import test from 'node:test'
import { countApiBytes, expectAccessible, openPage, setUp, signUp } from './harness.mjs'
import { definedRoutes, fillPages, pageList, settle } from './pages.mjs'

let person
let pages
const shared = setUp('provider', async ({ gateway }) => {
  person = await signUp(gateway, { plan: 'enterprise' })
  pages = pageList(await fillPages(gateway, person))
})

const MAX_API_KB = 60
const MAX_ELEMENTS = 3000
const WIDTHS = { wide: { width: 1280, height: 800 }, narrow: { width: 390, height: 844 } }
/** An invitation and a reset that do not exist, an MCP server and a webhook that do not answer. */
const EXPECTED_ERRORS = /status of 4\d\d|status of 502/

const open = (path, isPublic) => openPage(shared.browser, shared.gateway, { path, ...(!isPublic && { person }) })

/** Texts that reach over the right edge of their card, and are neither cut nor scrolled. Runs in the page. */
function spilled() {
  const clips = (element) => getComputedStyle(element).overflowX !== 'visible'
  const isFree = (element, card) => element === card || (!clips(element) && isFree(element.parentElement, card))
  return [...document.querySelectorAll('.card')].flatMap((card) => {
    const edge = card.getBoundingClientRect().right + 1
    const outside = [...card.querySelectorAll('*')].filter((element) => element.children.length === 0 && element.textContent.trim() !== '' && element.getBoundingClientRect().right > edge && !element.closest('svg, .sr-only'))
    return outside.filter((element) => isFree(element, card)).map((element) => element.textContent.trim().slice(0, 60))
  })
}

test('the list has every route', () => {
  assert.deepEqual(pages.flatMap(({ route }) => route ?? []).sort(), definedRoutes())
  assert.ok(pages.length > 40)
})

test('no page violates WCAG A or AA, in both themes, on a desk and on a phone', async () => {
  const problems = []
  for (const { name, path, isPublic } of pages) {
    const page = await open(path, isPublic)
    await settle(page)
    for (const [width, viewport] of Object.entries(WIDTHS)) {
      await page.setViewportSize(viewport)
      for (const theme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme: theme })
        await page.waitForTimeout(50)
        await expectAccessible(page, `${name}, ${width}, ${theme}`, theme).catch((error) => problems.push(error.message))
      }
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
      if (overflow > 0) problems.push(`${name} is ${overflow} px too wide for ${viewport.width} px`)
      for (const text of await page.evaluate(spilled)) problems.push(`${name}, ${width}: outside its card: ${text}`)
    }
    page.clean({ allow: EXPECTED_ERRORS })
    await page.context().close()
  }
  assert.deepEqual(problems, [])
})

/**
 * How long a page takes depends on the machine and on what else it does, so a test cannot hold it to a time;
 * `scripts/pages.mjs` measures that. A test can hold it to what makes it slow: data and elements.
 */
test(`no page loads more than ${MAX_API_KB} KB from the API or has more than ${MAX_ELEMENTS} elements`, async () => {
  const heavy = []
  const sizes = []
  for (const { name, path, isPublic } of pages.filter((page) => !page.isPublic)) {
    const page = await open('/account', isPublic)
    await settle(page)
    const traffic = await countApiBytes(page)
    await page.goto(`/console${path}`)
    await settle(page)
    const elements = await page.evaluate(() => document.querySelectorAll('*').length)
    const kilobytes = traffic.bytes() / 1024
    sizes.push(`${name} ${kilobytes.toFixed(1)} KB ${elements}`)
    if (kilobytes > MAX_API_KB || elements > MAX_ELEMENTS) heavy.push(sizes.at(-1))
    await page.context().close()
  }
  console.log(`data and elements: ${sizes.join(', ')}`)
  assert.deepEqual(heavy, [])
})
