import { expect, test } from 'vitest'
import { fitSize, readImage } from './images'

test('images are made smaller, never larger', () => {
  expect(fitSize(4000, 2000, 1000)).toEqual({ width: 1000, height: 500 })
  expect(fitSize(200, 100, 1000)).toEqual({ width: 200, height: 100 })
  expect(fitSize(100_000, 1, 1000)).toEqual({ width: 1000, height: 1 })
})

test('other files are refused with a remedy', async () => {
  await expect(readImage(new Blob(['x'], { type: 'text/plain' }))).rejects.toThrow(/Choose a PNG/)
})
