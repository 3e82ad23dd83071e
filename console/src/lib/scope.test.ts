import { expect, it } from 'vitest'
import { allows, callable, choiceOf, problemOf, scopesOf } from './scope'

const OFFERS = [
  { name: 'openai', models: [{ id: 'gpt-4o' }, { id: 'gpt-4o-mini' }, { id: 'o3' }] },
  { name: 'azure-openai', models: [{ id: 'gpt-4o' }] },
]

it('takes providers for alternatives, models too, and wants one of each where both are named', () => {
  expect(allows(['*'], 'any', 'thing')).toBe(true)
  expect(allows(['provider:openai', 'provider:groq'], 'groq', 'x')).toBe(true)
  expect(allows(['provider:openai'], 'groq', 'x')).toBe(false)
  expect(allows(['model:gpt-4o'], 'azure-openai', 'gpt-4o')).toBe(true)
  expect(allows(['model:gpt-4o'], 'openai', 'gpt-4o-mini')).toBe(false)
  expect(allows(['model:gpt-4o*'], 'openai', 'gpt-4o-mini')).toBe(true)
  expect(allows(['provider:open*', 'model:gpt*'], 'openai', 'o3')).toBe(false)
  expect(allows(['provider:openai', 'model:gpt-4o'], 'azure-openai', 'gpt-4o')).toBe(false)
  expect(allows(['provider:none', '*'], 'openai', 'o3')).toBe(true)
})

it('lists the models that a key can call', () => {
  expect(callable(['model:gpt-4o*'], OFFERS)).toHaveLength(3)
  expect(callable(['provider:azure-openai', 'model:gpt-4o*'], OFFERS)).toEqual([{ provider: 'azure-openai', model: 'gpt-4o' }])
  expect(callable(['*'], OFFERS)).toHaveLength(4)
})

it('goes from scopes to the form and back', () => {
  const scopes = ['provider:openai', 'model:gpt-4o*', 'model:meta:llama']
  expect(choiceOf(scopes)).toEqual({ providers: ['openai'], models: ['gpt-4o*', 'meta:llama'] })
  expect(scopesOf(choiceOf(scopes))).toEqual(scopes)
  expect(scopesOf({ providers: [], models: [] })).toEqual(['*'])
})

it('says what is wrong before the server has to', () => {
  expect(problemOf(['*'])).toBeNull()
  expect(problemOf(['provider:openai', 'model:a/b:c'])).toBeNull()
  expect(problemOf([])).toMatch(/at least one/)
  expect(problemOf(['model:'])).toMatch(/no provider or model/)
  expect(problemOf(['model:two words'])).toMatch(/two words/)
  expect(problemOf([`model:${'x'.repeat(201)}`])).toMatch(/200/)
  expect(problemOf(Array.from({ length: 101 }, (_, at) => `model:m${at}`))).toMatch(/100/)
})
