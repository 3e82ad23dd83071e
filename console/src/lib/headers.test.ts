import { expect, it } from 'vitest'
import { headersOf } from './headers'

it('reads a header from each line', () => {
  expect(headersOf('Authorization: Bearer a:b\n\n X-Team : search \nnonsense')).toEqual({ Authorization: 'Bearer a:b', 'X-Team': 'search' })
})
