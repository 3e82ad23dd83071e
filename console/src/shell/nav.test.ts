import { expect, it } from 'vitest'
import { docsOf } from './nav'

it('finds the documentation of a page and of what is below it', () => {
  expect(docsOf('/org/budgets')).toBe('/console/docs/budgets')
  expect(docsOf('/prompts/support/greeting')).toBe('/console/docs/prompts')
  expect(docsOf('/')).toBe('/console/docs/concepts')
  expect(docsOf('/account')).toBe('/console/docs/')
})
