import { expect, test } from 'vitest'
import { countChange, parseIds, parseObject, pointsChange, relativeChange, rowMatches, targetTitle } from './replays'

test('a replay is named by what it changes', () => {
  expect(targetTitle({ provider: 'openai', model: 'gpt-4o', prompt: { name: 'support/greeting', version: 2 }, params: { temperature: 0 } })).toBe('openai/gpt-4o · support/greeting v2 · temperature')
  expect(targetTitle({ model: 'gpt-4o' })).toBe('gpt-4o')
  expect(targetTitle(null)).toBe('replay')
})

test('changes say how much and whether that is good', () => {
  expect(relativeChange(2, 1, 'less')).toEqual({ text: '−50%', tone: 'ok' })
  expect(relativeChange(1, 1.05, 'less')).toEqual({ text: '+5.0%', tone: 'err' })
  expect(relativeChange(1, 100, 'neither')).toEqual({ text: '+99×', tone: 'muted' })
  expect(relativeChange(1000, 4, 'less').text).toBe('−99.6%')
  expect(relativeChange(0, 1, 'less')).toEqual({ text: 'more', tone: 'err' })
  expect(relativeChange(null, 1, 'less').text).toBe('–')
  expect(relativeChange(3, 3, 'less').text).toBe('same')
  expect(pointsChange(0.5, 0.75)).toEqual({ text: '+25 pts', tone: 'ok' })
  expect(pointsChange(0.5, 0.5001).text).toBe('same')
  expect(countChange(3, 1, 'less')).toEqual({ text: '−2', tone: 'ok' })
})

test('rows are found by what happened to them', () => {
  const verdict = (before: boolean, after: boolean) => [{ before: { passed: before }, after: { passed: after } }]
  const row = { state: 'done', before: { status: 200 }, after: { status: 200 }, scores: verdict(true, false) }
  expect(rowMatches(row, 'lost')).toBe(true)
  expect(rowMatches(row, 'gained')).toBe(false)
  expect(rowMatches(row, 'errors')).toBe(false)
  expect(rowMatches({ ...row, scores: [{ before: { passed: true }, after: null }] }, 'lost')).toBe(false)
  expect(rowMatches({ ...row, after: { status: 429 } }, 'errors')).toBe(true)
  expect(rowMatches({ ...row, state: 'error', after: null }, 'errors')).toBe(true)
})

test('ids and objects from text', () => {
  expect(parseIds('3,1,3,x,,-1,2', 10)).toEqual([3, 1, 2])
  expect(parseIds('1,2,3', 2)).toEqual([1, 2])
  expect(parseIds(undefined, 2)).toEqual([])
  expect(parseObject(' ')).toEqual({ value: null, problem: null })
  expect(parseObject('{"a": 1}').value).toEqual({ a: 1 })
  expect(parseObject('[1]').problem).not.toBeNull()
})
