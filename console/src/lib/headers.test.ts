import { expect, it } from 'vitest'
import { parseHeaders } from './headers'

it('reads a header from each line', () => {
  expect(parseHeaders('Authorization: Bearer a:b\n\n X-Team : search \nnonsense')).toEqual({ Authorization: 'Bearer a:b', 'X-Team': 'search' })
})
