import { expect, test } from 'vitest'
import type { LogRow } from '@/api/logs'
import { formatRows } from './exportRows'

const row = (id: number) => ({ id, created_at: '2026-11-15T00:00:00Z', status: 200, error_code: null, stream: false, attempts: [], metadata: { env: 'a,b' }, preview: '=1+1' }) as unknown as LogRow

test('CSV has a header and a line for each row, with lists and objects as JSON', () => {
  const lines = formatRows([row(3), row(2)], 'csv').trimEnd().split('\r\n')
  expect(lines).toHaveLength(3)
  expect(lines[0]).toMatch(/^id,request_id,created_at,.*,preview,request_stored,response_stored$/)
  expect(lines[1]).toContain(`[],,"{""env"":""a,b""}",'=1+1`)
  expect(lines[1]?.split(',').slice(9, 12)).toEqual(['200', '', 'false'])
})

test('each row is a line of NDJSON', () => {
  expect(formatRows([row(1), row(2)], 'ndjson').trimEnd().split('\n').map((line) => (JSON.parse(line) as LogRow).id)).toEqual([1, 2])
})
