import { expect, test } from 'vitest'
import { actionInWords } from './words'

test('actions are shown in words', () => {
  expect(actionInWords('key.rotate')).toBe('rotated key')
  expect(actionInWords('auth.login')).toBe('signed in')
  expect(actionInWords('dataset.add_cases')).toBe('added cases to dataset')
  expect(actionInWords('thing.some_verb')).toBe('some verb thing')
})
