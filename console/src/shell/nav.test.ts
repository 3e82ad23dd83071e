import { expect, it } from 'vitest'
import { docsOf, NAV } from './nav'

it('finds the documentation of a page and of what is below it', () => {
  expect(docsOf('/org/budgets')).toBe('/console/docs/budgets')
  expect(docsOf('/prompts/support/greeting')).toBe('/console/docs/prompts')
  expect(docsOf('/')).toBe('/console/docs/concepts')
  expect(docsOf('/account')).toBe('/console/docs/access')
  expect(docsOf('/shelf')).toBe('/console/docs/skills')
  expect(docsOf('/start')).toBe('/console/docs/quick-start')
  expect(docsOf('/no/such/page')).toBe('/console/docs/quick-start')
})

it('links to documentation that exists', () => {
  const files = Object.keys(import.meta.glob('../../../docs/**/*.md')).map((path) => path.replace(/^.*\/docs\//, ''))
  expect(files).toContain('concepts.md')
  const pages = [...NAV.flatMap((group) => group.items.map((item) => item.docs)), ...['/account', '/shelf'].map((path) => docsOf(path).replace('/console/docs/', ''))]
  // A directory has an index of its pages.
  const missing = pages.filter((page) => !files.some((file) => (page.endsWith('/') ? file.startsWith(page) : file === `${page}.md`)))
  expect(missing).toEqual([])
})
