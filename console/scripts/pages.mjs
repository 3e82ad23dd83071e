/**
 * Takes a picture of every page in light and dark, at both widths, and measures how long each takes to be usable on a
 * processor that is four times slower. It needs a built console, a debug binary and Chromium, as the browser tests do:
 *
 *     node scripts/pages.mjs DIRECTORY [PARTS OF NAMES]
 *
 * The directory must be outside the repository. Times are elapsed time: run it on an idle machine.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { relative, resolve } from 'node:path'
import { launch, openPage, signUp, startGateway } from '../e2e/harness.mjs'
import { fillPages, pageList, settle } from '../e2e/pages.mjs'
import { fillRealistic, moreStates, startNeighbours, startSupportProvider } from '../e2e/realistic.mjs'

const SLOWDOWN = 4
const WIDTHS = { wide: { width: 1280, height: Number(process.env.WIDE_HEIGHT ?? 800) }, narrow: { width: 390, height: Number(process.env.NARROW_HEIGHT ?? 844) } }
const root = resolve(import.meta.dirname, '../..')
const [target, part = ''] = process.argv.slice(2)
if (!target || !relative(root, resolve(target)).startsWith('..')) {
  console.error('usage: node scripts/pages.mjs DIRECTORY [PARTS OF NAMES], with a directory outside the repository')
  process.exit(2)
}
mkdirSync(target, { recursive: true })

const [provider, neighbours] = [await startSupportProvider(), await startNeighbours()]
const gateway = await startGateway({ ...provider.env, GATEWAY_INSTALL_LINKS: 'true' })
const browser = await launch()
try {
  const person = await signUp(gateway, { plan: 'enterprise' })
  const basic = await fillPages(gateway, person)
  const ids = { ...basic, ...(await fillRealistic(gateway, person, basic, neighbours)) }
  const pages = [...pageList(ids), ...moreStates(ids)].filter(({ name }) => part.split(',').some((wanted) => name.includes(wanted)))
  const lines = []
  for (const { name, path, isPublic } of pages) {
    const usableMs = await timed(path, isPublic ? null : person)
    const page = await openPage(browser, gateway, { path, ...(!isPublic && { person }) })
    await settle(page)
    for (const [width, viewport] of Object.entries(WIDTHS)) {
      await page.setViewportSize(viewport)
      for (const theme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme: theme })
        await page.waitForTimeout(200)
        await page.screenshot({ path: resolve(target, `${name}-${width}-${theme}.png`) })
      }
    }
    lines.push(`${name}\t${usableMs} ms`)
    console.log(lines.at(-1))
    await page.context().close()
  }
  writeFileSync(resolve(target, 'times.tsv'), `${lines.join('\n')}\n`)

  /** Milliseconds from the navigation to a page with its data, slowed down. Code is in the cache, as after the first visit. */
  async function timed(path, someone) {
    const page = await openPage(browser, gateway, { path, ...(someone && { person: someone }) })
    await settle(page)
    const devtools = await page.context().newCDPSession(page)
    await devtools.send('Emulation.setCPUThrottlingRate', { rate: SLOWDOWN })
    const began = Date.now()
    await page.goto(`/console${path}`)
    await settle(page)
    const took = Date.now() - began
    await page.context().close()
    return took
  }
} finally {
  await browser.close()
  await gateway.stop()
  await provider.stop()
  await neighbours.stop()
}
