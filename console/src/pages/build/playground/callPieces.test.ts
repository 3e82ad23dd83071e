import { expect, test } from 'vitest'
import { addPieces, type PartialCall } from './callPieces'

/** The calls after each chunk, as the page shows them: name and arguments. */
function shownAfter(chunks: readonly (readonly unknown[])[]): string[][] {
  let calls: readonly PartialCall[] = []
  return chunks.map((pieces) => {
    calls = addPieces(calls, pieces)
    return calls.map(({ call }) => `${call.function.name}(${call.function.arguments})`)
  })
}

function idsAfter(chunks: readonly (readonly unknown[])[]): string[] {
  return chunks.reduce((calls: readonly PartialCall[], pieces) => addPieces(calls, pieces), []).map(({ call }) => call.id)
}

test('the name comes first, and the arguments grow', () => {
  const chunks = [
    [{ index: 0, id: 'c1', type: 'function', function: { name: 'weather', arguments: '' } }],
    [{ index: 0, function: { arguments: '{"ci' } }],
    [{ index: 0, function: { arguments: 'ty":"Ro' } }],
    [{ index: 0, function: { arguments: 'me"}' } }],
  ]
  expect(shownAfter(chunks)).toEqual([['weather()'], ['weather({"ci)'], ['weather({"city":"Ro)'], ['weather({"city":"Rome"})']])
  expect(idsAfter(chunks)).toEqual(['c1'])
})

test('arguments in hundreds of pieces are put together without loss', () => {
  const text = JSON.stringify({ text: 'A “long” answer with emojis 🌧️ and \\ and "quotes". '.repeat(40) })
  // By UTF-16 units: a piece may end in the middle of a character.
  const pieces = text.split('').map((arguments_) => [{ index: 0, function: { arguments: arguments_ } }])
  const calls = pieces.reduce((before: readonly PartialCall[], piece) => addPieces(before, piece), addPieces([], [{ index: 0, id: 'c', function: { name: 'write' } }]))
  expect(calls[0]?.call.function).toEqual({ name: 'write', arguments: text })
})

test('several calls grow by their index, also when their pieces alternate or share a chunk', () => {
  const chunks = [
    [{ index: 0, id: 'a', function: { name: 'find', arguments: '' } }, { index: 1, id: 'b', function: { name: 'send', arguments: '{' } }],
    [{ index: 1, function: { arguments: '"to":1' } }],
    [{ index: 0, function: { arguments: '{}' } }, { index: 1, function: { arguments: '}' } }],
  ]
  expect(shownAfter(chunks).at(-1)).toEqual(['find({})', 'send({"to":1})'])
  expect(idsAfter(chunks)).toEqual(['a', 'b'])
})

test('calls are in the order of their indexes, not of their arrival, and indexes may be missing', () => {
  const chunks = [[{ index: 4, id: 'e', function: { name: 'last', arguments: '{' } }], [{ index: 1, id: 'b', function: { name: 'first', arguments: '{}' } }], [{ index: 4, function: { arguments: '}' } }], [{ index: 2, id: 'c', function: { name: 'middle', arguments: '{}' } }]]
  expect(shownAfter(chunks)).toEqual([['last({)'], ['first({})', 'last({)'], ['first({})', 'last({})'], ['first({})', 'middle({})', 'last({})']])
  expect(idsAfter(chunks)).toEqual(['b', 'c', 'e'])
})

test('an id that comes late is kept, and an empty one later does not remove it', () => {
  const chunks = [[{ index: 0, function: { name: 'weather' } }], [{ index: 0, function: { arguments: '{' } }], [{ index: 0, id: 'late', function: { arguments: '}' } }], [{ index: 0, id: '', function: { arguments: '' } }]]
  expect(idsAfter(chunks.slice(0, 2))).toEqual([''])
  expect(idsAfter(chunks)).toEqual(['late'])
  expect(shownAfter(chunks).at(-1)).toEqual(['weather({})'])
})

test('pieces without an index are whole calls', () => {
  expect(shownAfter([[{ id: 'a', function: { name: 'a', arguments: '{}' } }], [{ id: 'b', function: { name: 'b', arguments: '{}' } }]])).toEqual([['a({})'], ['a({})', 'b({})']])
})

test('what is no piece is ignored, earlier results are not changed, and the number of calls is bounded', () => {
  const before = addPieces([], [{ index: 0, id: 'a', function: { name: 'a', arguments: '{' } }])
  expect(addPieces(before, [null, 'text', 7])).toBe(before)
  expect(addPieces(before, [{ index: 0, function: { arguments: 5 } }])).toEqual(before)
  addPieces(before, [{ index: 0, function: { arguments: '}' } }])
  expect(before[0]?.call.function.arguments).toBe('{')
  const many = Array.from({ length: 300 }, (_, index) => ({ index, id: `c${index}`, function: { name: 'n', arguments: '' } }))
  const bounded = addPieces([], many)
  expect(bounded.length).toBe(128)
  expect(addPieces(bounded, [{ index: 5, function: { arguments: '{}' } }])[5]?.call.function.arguments).toBe('{}')
})
