import { expect, test } from 'vitest'
import { formatOf, guessMapping, isPlain, loadFile, mapRows } from './importFile'

test('a format is told by the name, else by the text', () => {
  expect(formatOf('a.jsonl', '')).toBe('ndjson')
  expect(formatOf('a.txt', ' [')).toBe('json')
  expect(formatOf('a', '{"input":1}')).toBe('ndjson')
  expect(formatOf('a', 'input,expected')).toBe('csv')
})

test('rows that are wrong already are named with their line', () => {
  expect(loadFile('input,expected\na,b\nc\n', 'csv').bad).toEqual([{ line: 3, message: 'has 1 cells, the header has 2' }])
  expect(loadFile('{"input":1}\n\nnonsense\n5', 'ndjson').bad).toEqual([
    { line: 3, message: 'is no JSON' },
    { line: 4, message: 'must be an object with an input' },
  ])
  expect(loadFile('{"a":1}', 'json').bad).toHaveLength(1)
})

test('columns of other names are mapped, the rest becomes metadata', () => {
  const file = loadFile('question,answer,topic\nq1,a1,x\nq2,,y', 'csv')
  const mapping = guessMapping(file.columns)
  expect(mapping).toEqual({ input: 'question', expected: 'answer' })
  expect(isPlain(file, mapping)).toBe(false)
  expect(mapRows(file, mapping).split('\n').map((line) => JSON.parse(line) as unknown)).toEqual([
    { input: 'q1', expected: 'a1', metadata: { topic: 'x' } },
    { input: 'q2', metadata: { topic: 'y' } },
  ])
})

test('a file with the known names goes as it is', () => {
  const file = loadFile('[{"input": 1, "expected": 2}]', 'json')
  expect(isPlain(file, guessMapping(file.columns))).toBe(true)
})
