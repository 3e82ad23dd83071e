import { expect, test } from 'vitest'
import { detectFormat, guessMapping, needsNoMapping, loadFile, mapRows } from './importFile'

test('the format is detected from the file name, else from the content', () => {
  expect(detectFormat('a.jsonl', '')).toBe('ndjson')
  expect(detectFormat('a.txt', ' [')).toBe('json')
  expect(detectFormat('a', '{"input":1}')).toBe('ndjson')
  expect(detectFormat('a', 'input,expected')).toBe('csv')
})

test('invalid rows are reported with their line', () => {
  expect(loadFile('input,expected\na,b\nc\n', 'csv').invalid).toEqual([{ line: 3, message: 'has 1 cells, the header has 2' }])
  expect(loadFile('{"input":1}\n\nnonsense\n5', 'ndjson').invalid).toEqual([
    { line: 3, message: 'is not valid JSON' },
    { line: 4, message: 'must be an object with an input' },
  ])
  expect(loadFile('{"a":1}', 'json').invalid).toHaveLength(1)
})

test('columns are mapped and all others become metadata', () => {
  const file = loadFile('question,answer,topic\nq1,a1,x\nq2,,y', 'csv')
  const mapping = guessMapping(file.columns)
  expect(mapping).toEqual({ input: 'question', expected: 'answer' })
  expect(needsNoMapping(file, mapping)).toBe(false)
  expect(mapRows(file, mapping).split('\n').map((line) => JSON.parse(line) as unknown)).toEqual([
    { input: 'q1', expected: 'a1', metadata: { topic: 'x' } },
    { input: 'q2', metadata: { topic: 'y' } },
  ])
})

test('a file with the expected column names needs no mapping', () => {
  const file = loadFile('[{"input": 1, "expected": 2}]', 'json')
  expect(needsNoMapping(file, guessMapping(file.columns))).toBe(true)
})
