import { expect, test } from 'vitest'
import { rebase } from './rebase'

test('changes of different lines are merged', () => {
  expect(rebase('a\nb\nc\nd\ne', 'A\nb\nc\nd\ne', 'a\nb\nc\nd\nE')).toBe('A\nb\nc\nd\nE')
})

test('changes of the same line conflict', () => {
  expect(rebase('a\nb', 'a\nmine', 'a\ntheirs')).toBeNull()
})
