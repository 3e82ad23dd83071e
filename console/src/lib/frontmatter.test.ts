import { expect, test } from 'vitest'
import { checkSource, lineOf } from './frontmatter'

const text = (header: string, body = '\nDo it.') => `---\n${header}\n---\n${body}`

test('a sound file has no problem', () => {
  expect(checkSource(text('name: write-report\ndescription: >\n  Writes a report.\n  Use it weekly.'))).toEqual([])
  expect(checkSource(text('name: "x"\ndescription: "A: b"'))).toEqual([])
})

test('what the server would refuse is named with its line', () => {
  expect(checkSource('# Title')).toEqual([{ line: 1, message: 'must begin with a line of ---' }])
  expect(checkSource('---\nname: x')).toHaveLength(1)
  expect(checkSource(text('description: d\nname: Not Kebab')).map((problem) => problem.line)).toEqual([3])
  expect(checkSource(text('name: x')).map((problem) => problem.message)).toEqual(['description: is needed'])
  expect(checkSource(text(`name: x\ndescription: ${'d'.repeat(1025)}`))).toHaveLength(1)
  expect(checkSource(text('name: x\ndescription: d', ' \n'))).toEqual([{ line: 4, message: 'the instructions below the frontmatter are missing' }])
})

test('lines of the YAML are lines of the file', () => {
  expect(lineOf("unclosed bracket '[' at line 2, column 14")).toBe(3)
  expect(lineOf('no place')).toBeNull()
})
