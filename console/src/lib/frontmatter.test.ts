import { expect, test } from 'vitest'
import { licenceText, validateSkillSource, sourceLineOf } from './frontmatter'

const text = (header: string, body = '\nDo it.') => `---\n${header}\n---\n${body}`

test('a valid file has no problems', () => {
  expect(validateSkillSource(text('name: write-report\ndescription: >\n  Writes a report.\n  Use it weekly.'))).toEqual([])
  expect(validateSkillSource(text('name: "x"\ndescription: "A: b"'))).toEqual([])
})

test('invalid fields are reported with their line', () => {
  expect(validateSkillSource('# Title')).toEqual([{ line: 1, message: 'must begin with a line of ---' }])
  expect(validateSkillSource('---\nname: x')).toHaveLength(1)
  expect(validateSkillSource(text('description: d\nname: Not Kebab')).map((problem) => problem.line)).toEqual([3])
  expect(validateSkillSource(text('name: x')).map((problem) => problem.message)).toEqual(['description: is required'])
  expect(validateSkillSource(text(`name: x\ndescription: ${'d'.repeat(1100)}`)).map((problem) => problem.message)).toEqual(['description: has 1,100 characters; the maximum is 1,024'])
  expect(validateSkillSource(text('name: x\ndescription: d', ' \n'))).toEqual([{ line: 4, message: 'the instructions below the front matter are missing' }])
})

test('the licence is read from the front matter', () => {
  expect(licenceText(text('name: x\nlicense: MIT'))).toBe('Licence: MIT')
  expect(licenceText(text('name: x', '\nlicense: MIT'))).toBe('No licence stated')
})

test('YAML line numbers are converted to file line numbers', () => {
  expect(sourceLineOf("unclosed bracket '[' at line 2, column 14")).toBe(3)
  expect(sourceLineOf('no place')).toBeNull()
})
