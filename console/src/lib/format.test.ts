import { expect, it } from 'vitest'
import { age, ago, bytes, compact, cost, duration, money, moneyColumn, moneyTicks, percent, plural, roundDuration, time, integer } from './format'

it('shortens numbers', () => {
  const cases: [number | null, string][] = [
    [null, '–'],
    [0, '0'],
    [842, '842'],
    [0.25, '0.3'],
    [999.99, '1 k'],
    [1_000, '1,000'],
    [9_999, '9,999'],
    [12_345, '12.3 k'],
    [99_960, '100 k'],
    [999_960, '1 M'],
    [34_000_000, '34 M'],
    [-1_500, '-1,500'],
    [2.5e9, '2.5 B'],
  ]
  for (const [value, text] of cases) expect(compact(value), String(value)).toBe(text)
  expect(integer(1_234_567)).toBe('1,234,567')
})

it('formats small amounts with two significant digits', () => {
  const cases: [number | null, string][] = [
    [null, '–'],
    [0, '$0'],
    [1_234.5, '$1,234.50'],
    [1, '$1.00'],
    [0.42, '$0.42'],
    [0.123456, '$0.123'],
    [0.042, '$0.042'],
    [0.0042, '$0.0042'],
    [0.0000035, '$0.0000035'],
    [1e-9, '<$0.00000001'],
    [0.6, '$0.60'],
    [-0.5, '−$0.50'],
  ]
  for (const [value, text] of cases) expect(money(value), String(value)).toBe(text)
})

it('formats durations with a fitting unit', () => {
  const cases: [number | null, string][] = [
    [null, '–'],
    [0, '0 ms'],
    [0.42, '0.4 ms'],
    [842, '842 ms'],
    [999.7, '1.00 s'],
    [1_240, '1.24 s'],
    [12_340, '12.3 s'],
    [59_990, '1 min'],
    [184_000, '3 min 4 s'],
    [7_500_000, '2 h 5 min'],
    [273_600_000, '3 d 4 h'],
  ]
  for (const [value, text] of cases) expect(duration(value), String(value)).toBe(text)
})

it('formats chosen durations without trailing zeros', () => {
  expect([0, 750, 1_000, 2_500, 4_000, 10_000, 10_500, 40_000, 60_000, 220_000].map(roundDuration)).toEqual(['0 ms', '750 ms', '1 s', '2.5 s', '4 s', '10 s', '10.5 s', '40 s', '1 min', '3 min 40 s'])
})

it('formats fractions, sizes and counts', () => {
  expect([0, 0.0004, 0.123, 1, Number.NaN].map(percent)).toEqual(['0%', '<0.1%', '12.3%', '100%', '–'])
  expect([18, 1_536, 262_144, 5 * 2 ** 40].map(bytes)).toEqual(['18 B', '1.5 KiB', '256 KiB', '5 TiB'])
  expect([plural(1, 'key'), plural(3, 'key'), plural(2, 'entry', 'entries')]).toEqual(['1 key', '3 keys', '2 entries'])
})

it('formats time in the chosen zone and names the zone in full style', () => {
  const at = '2026-11-15T14:03:21.042Z'
  expect(time(at, 'utc', 'time')).toBe('14:03:21')
  expect(time(at, 'utc', 'short')).toBe('15 Nov 2026, 14:03')
  expect(time(at, 'utc', 'full')).toBe('15 Nov 2026, 14:03:21.042 UTC')
  expect(time('2026-11-15T00:03:21Z', 'utc', 'minute')).toBe('00:03')
  expect(time('nonsense', 'utc')).toBe('–')
})

it('formats relative time', () => {
  const now = Date.parse('2026-11-15T12:00:00Z')
  const back = (seconds: number): string => ago(now - seconds * 1000, now)
  expect([3, 45, 300, 7_200, 86_400 * 3].map(back)).toEqual(['just now', '45 s ago', '5 min ago', '2 h ago', '3 d ago'])
  expect(back(-10_800)).toBe('in 3 h')
  expect(ago(null, now)).toBe('–')
  expect(age('2026-11-15T11:55:00Z', now)).toBe('5 min')
})

it('amounts of a column have two decimals from a dollar on', () => {
  expect([1.5, 0.004, 0.25, null].map(moneyColumn([1.5, 0.004]))).toEqual(['$1.50', '<$0.01', '$0.25', '–'])
  expect([0.5, 0.00001].map(moneyColumn([0.5]))).toEqual(['$0.5000', '<$0.0001'])
  expect([0, null].map(moneyColumn([0, null]))).toEqual(['$0.00', '–'])
})

it('costs of a column have the same number of decimals', () => {
  expect([0, 0.0042, 0.000001, 0.00005, 12, -0.5, null].map(cost)).toEqual(['$0.0000', '$0.0042', '<$0.0001', '$0.0001', '$12.0000', '−$0.5000', '–'])
})

it('gives the amounts of an axis the same decimals', () => {
  expect([0, 0.025, 0.05, 0.1].map(moneyTicks([0, 0.025, 0.05, 0.1]))).toEqual(['$0.000', '$0.025', '$0.050', '$0.100'])
  expect([0, 500, 1000].map(moneyTicks([0, 500, 1000]))).toEqual(['$0', '$500', '$1,000'])
})
