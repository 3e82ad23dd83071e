import { expect, test } from 'vitest'
import { splitHits } from './Marked'

test('whole words are marked in any case', () => {
  expect(splitHits('An Invoice, invoices and INVOICE', ['invoice'])).toEqual(['An ', 'Invoice', ', invoices and ', 'INVOICE', ''])
  expect(splitHits('a (b) c', ['('])).toEqual(['a (b) c'])
  expect(splitHits('nothing', [])).toEqual(['nothing'])
})
