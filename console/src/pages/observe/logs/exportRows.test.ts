import { afterEach, expect, test, vi } from 'vitest'
import { client } from '@/api/client'
import type { LogRow } from '@/api/logs'
import { collectRows, formatRows } from './exportRows'

const row = (id: number) => ({ id, created_at: '2026-11-15T00:00:00Z', status: 200, error_code: null, attempts: [], metadata: { env: 'a,b' }, preview: '=1+1' }) as unknown as LogRow

afterEach(() => vi.restoreAllMocks())

function serve(pages: { logs: LogRow[]; next_cursor: string | null; partial?: boolean }[]) {
  return vi.spyOn(client, 'GET').mockImplementation((async () => ({ data: pages.shift() })) as never)
}

test('pages are followed to the end, and only the first part has a header', async () => {
  serve([{ logs: [row(3), row(2)], next_cursor: 'c' }, { logs: [], next_cursor: 'd' }, { logs: [row(1)], next_cursor: null }])
  const progress: number[] = []
  const result = await collectRows({ from: 'x' }, { format: 'csv', signal: new AbortController().signal, onProgress: (rows) => progress.push(rows) })
  const lines = result.parts.join('').trimEnd().split('\r\n')
  expect(lines).toHaveLength(4)
  expect(lines[0]).toMatch(/^id,time,status/)
  expect(lines[1]).toContain(`"{""env"":""a,b""}",'=1+1`)
  expect(progress).toEqual([2, 2, 3])
  expect(result.incomplete).toBeNull()
})

test('the number of rows is bounded, and a partial search is said', async () => {
  serve([{ logs: [row(3), row(2)], next_cursor: 'c' }])
  const bounded = await collectRows({ from: 'x' }, { format: 'ndjson', signal: new AbortController().signal, onProgress: () => undefined, maxRows: 1 })
  expect([bounded.rows, bounded.parts.join('').split('\n').length]).toEqual([1, 2])
  expect(bounded.incomplete).toMatch(/at most 1 rows/)
  serve([{ logs: [], next_cursor: null, partial: true }])
  expect((await collectRows({ from: 'x' }, { format: 'csv', signal: new AbortController().signal, onProgress: () => undefined })).incomplete).toMatch(/Only rows since/)
})

test('each row is a line', () => {
  expect(formatRows([row(1), row(2)], 'ndjson', false).trimEnd().split('\n').map((line) => (JSON.parse(line) as LogRow).id)).toEqual([1, 2])
})
